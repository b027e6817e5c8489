"""Processes of two releases talk to each other while a server is restarted child by child.

`tests/golden/last_release` has the bytes that the last release sends: this release reads all of them. The next release may add
fields: those of servers are ignored, and those that clients ask for are refused by name.
"""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from messages.errors import WireError
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.public import Accepted, ClientMessage, Generate
from messages.wire.codec import decode_answer, decode_envelope, encode_answer, encode_envelope
from messages.wire.envelope import Envelope, LinkAnswer
from messages.wire.message import Message, StrictMessage
from tests.support.examples.messages import INTERNAL, PUBLIC, codec_of, same
from tests.support.next_release.growth import of_next_release, packed

LAST_RELEASE = Path(__file__).parent.parent.parent / "golden" / "last_release"
EXAMPLES = {type(message).__name__: message for message in (*INTERNAL, *PUBLIC)}
SENT_BY_SERVERS = [message for message in EXAMPLES.values() if not isinstance(message, StrictMessage)]


def split(data: bytes) -> tuple[bytes, bytes]:
    """(body, arrays) of a golden file."""
    size = int.from_bytes(data[:4], "little")
    return data[4 : 4 + size], data[4 + size :]


@pytest.mark.parametrize("path", sorted(LAST_RELEASE.glob("*.bin")), ids=lambda path: path.stem)
def test_what_the_last_release_sends_is_read(path: Path) -> None:
    example = EXAMPLES.get(path.stem)
    assert example is not None, f"{path.stem}: expected a kind of the last release to be read for one more release, got none"
    body, arrays = split(path.read_bytes())
    assert type(codec_of(example).decode(body, arrays)) is type(example)


@pytest.mark.parametrize("message", SENT_BY_SERVERS, ids=lambda message: type(message).__name__)
def test_fields_that_the_next_release_adds_are_ignored(message: Message) -> None:
    codec = codec_of(message)
    body, arrays = codec.encode(message)
    grown = of_next_release(message, msgpack.unpackb(body))
    assert "of_next_release" in grown
    assert same(codec.decode(packed(grown), arrays), message)


def test_an_envelope_and_an_answer_may_grow() -> None:
    envelope, answer = Envelope(3, "gateway/0", 3, "scheduler/0", 2, 9, 4), LinkAnswer(1, 2, 3)
    assert decode_envelope(packed([*msgpack.unpackb(encode_envelope(envelope)), "more", 1])) == envelope
    assert decode_answer(packed([*msgpack.unpackb(encode_answer(answer)), "more"])) == answer


@pytest.mark.parametrize("kind", ClientMessage.__args__, ids=lambda kind: kind.__name__)
def test_an_unknown_field_of_a_client_is_refused_by_name(kind: type[Message]) -> None:
    codec = codec_of(EXAMPLES[kind.__name__])
    body, arrays = codec.encode(EXAMPLES[kind.__name__])
    with pytest.raises(WireError, match="of_next_release"):
        codec.decode(packed({**msgpack.unpackb(body), "of_next_release": 1}), arrays)


def test_an_acceptance_without_news_of_the_load_has_no_field_for_it() -> None:
    body, _ = codec_of(EXAMPLES["Accepted"]).encode(Accepted(request="req-1", n_prompt=4))
    assert set(msgpack.unpackb(body)) == {"kind", "request", "n_prompt", "n_answers", "fallback_model"}


def test_what_a_client_does_not_ask_for_is_not_sent() -> None:
    """A client of the next release can talk to this one as long as it uses nothing new."""
    body, _ = codec_of(EXAMPLES["Generate"]).encode(Generate(request="r", sampling=Sampling(seed=3), terms=Terms(max_tokens=4)))
    plain = msgpack.unpackb(body)
    assert plain["sampling"] == {"seed": 3}
    assert plain["terms"] == {"max_tokens": 4}
    for part in ("sampling", "terms"):
        grown = {**plain, part: {**plain[part], "of_next_release": 1}}
        with pytest.raises(WireError, match="of_next_release"):
            codec_of(EXAMPLES["Generate"]).decode(packed(grown), b"")
