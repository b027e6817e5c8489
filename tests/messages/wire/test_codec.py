"""What is not a message is refused with the field named; nothing that comes from outside raises anything else."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import WireError
from messages.generation.sequences import Tokens
from messages.routes import INTERNAL_KINDS
from messages.steps import Plan
from messages.wire.arrays import MAX_ARRAY_ITEMS, int32s, int64s
from messages.wire.codec import Codec, decode_envelope, encode_envelope
from messages.wire.envelope import Envelope, Staleness, staleness
from messages.wire.message import Message
from tests.support.examples.messages import INTERNAL

CODEC: Codec[Message] = Codec(INTERNAL_KINDS)
KINDS = {kind.__name__ for kind in INTERNAL_KINDS}


def packed(body: object) -> bytes:
    data = msgpack.packb(body)
    assert data is not None
    return data


def refuse(body: object, *expected: str, arrays: bytes = b"") -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode(packed(body), arrays)
    for word in expected:
        assert word in str(caught.value)


def test_refusals_name_the_culprit() -> None:
    refuse({"kind": "Nonsense"}, "Nonsense", "kind")
    refuse({"pid": 1}, "kind")
    refuse({"kind": "Hello", "pid": 1}, "endpoint")
    refuse({"kind": "Hello", "pid": "one", "endpoint": "x"}, "pid", "int", "str")
    refuse({"kind": "Hello", "pid": -1, "endpoint": "x"}, "pid", "0")
    refuse({"kind": "Hello", "pid": 1, "endpoint": "x" * 1000}, "endpoint", "256")
    refuse([1, 2], "object")


def test_array_descriptors_are_bounded() -> None:
    def find(hashes: object, arrays: bytes = b"\0" * 16) -> None:
        refuse({"kind": "FindPrefix", "query": 1, "hashes": hashes}, "arra", arrays=arrays)

    find(["<u8", 0, 3])
    find(["<u8", 16, 1])
    find(["<u8", -8, 1])
    find(["<u8", 0, -1])
    find(["<u8", 0, MAX_ARRAY_ITEMS + 1])
    find(["object", 0, 1])
    find(7)
    refuse({"kind": "FindPrefix", "query": 1, "hashes": ["<i4", 0, 2]}, "hashes", "<u8", "<i4", arrays=b"\0" * 8)


def test_inconsistent_arrays_are_refused() -> None:
    empty: dict[str, Any] = {name: int32s() for name in ("new_tokens", "page_slots", "page_indices", "page_ids")}
    with pytest.raises(ValueError, match="row_counts: expected 1 rows"):
        Plan(
            epoch=1,
            step=1,
            n_steps=1,
            new=[],
            row_slots=int32s([1]),
            row_starts=int32s([1]),
            row_counts=int32s(),
            row_samples=int32s([1]),
            **empty,
        )
    columns: dict[str, Any] = {name: int32s([1]) for name in ("firsts", "counts", "cached")}
    with pytest.raises(ValueError, match="attempts: expected a flat array of <i8"):
        Tokens(number=1, attempts=int32s([1]), **columns, ids=int32s([1]), endings=[])
    with pytest.raises(ValueError, match="cached: expected 1 rows as in attempts, got 0"):
        Tokens(number=1, attempts=int64s([1]), **{**columns, "cached": int32s()}, ids=int32s([1]), endings=[])


def test_only_the_vocabulary_is_encoded() -> None:
    with pytest.raises(WireError, match="Hello"):
        Codec([type(m) for m in INTERNAL if type(m).__name__ != "Hello"]).encode(INTERNAL[0])


@given(st.binary(max_size=200), st.binary(max_size=64))
def test_garbage_is_a_wire_error(body: bytes, arrays: bytes) -> None:
    with pytest.raises(WireError):
        CODEC.decode(body, arrays)


@given(st.sampled_from(INTERNAL), st.data())
def test_mutated_messages_are_messages_or_wire_errors(message: Message, data: st.DataObject) -> None:
    body, arrays = CODEC.encode(message)
    mutated = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):  # no other exception may leave
        assert type(CODEC.decode(bytes(mutated), arrays)).__name__ in KINDS


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        CODEC.decode(b"\x91" * 100_000, b"")


def test_envelope() -> None:
    for trace in (b"", bytes(range(16))):
        envelope = Envelope(3, "gateway/0", 3, "scheduler/0", 2, 9, 4, trace)
        assert decode_envelope(encode_envelope(envelope)) == envelope
    with pytest.raises(WireError, match="version: expected 3, got 1"):
        decode_envelope(packed([1, "a", 1, "b", 1, 1, 1]))
    with pytest.raises(WireError, match="sender_incarnation"):
        decode_envelope(packed([3, "a", "one", "b", 1, 1, 1, b""]))
    with pytest.raises(WireError, match="trace"):
        decode_envelope(packed([3, "a", 1, "b", 1, 1, 1, bytes(17)]))


def test_a_trace_costs_two_bytes_when_there_is_none() -> None:
    frame = encode_envelope(Envelope(3, "gateway/0", 3, "scheduler/0", 2, 9, 4))
    assert frame == packed([3, "gateway/0", 3, "scheduler/0", 2, 9, 4, b""])
    assert len(frame) - len(packed([3, "gateway/0", 3, "scheduler/0", 2, 9, 4])) == 2


@pytest.mark.parametrize(
    ("recipient", "its_life", "sender_life", "known", "expected"),
    [
        ("b", 5, 1, None, Staleness.CURRENT),
        ("b", 0, 1, None, Staleness.CURRENT),
        ("b", 4, 1, None, Staleness.FOR_OTHER_INCARNATION),
        ("c", 5, 1, None, Staleness.MISDIRECTED),
        ("b", 5, 1, 2, Staleness.FROM_OLD_INCARNATION),
        ("b", 5, 2, 2, Staleness.CURRENT),
        ("b", 5, 3, 2, Staleness.CURRENT),
    ],
)
def test_staleness(recipient: str, its_life: int, sender_life: int, known: int | None, expected: Staleness) -> None:
    assert staleness(Envelope(3, "a", sender_life, recipient, its_life, 1, 1), "b", 5, known) is expected


@pytest.mark.parametrize("junk", [b"\x90", b"\x80", b"\x01", b"\xc0"])
def test_a_large_value_in_the_place_of_an_array_never_becomes_objects(junk: bytes) -> None:
    """4 MiB of empty lists would take a second and 250 MiB."""
    n_items = 4 << 20
    body = packed({"kind": "Tokens", "step": 1}) + packed("ids") + b"\xdd" + n_items.to_bytes(4, "big") + junk * n_items
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            CODEC.decode(bytes([body[0] + 1]) + body[1:], b"")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * n_items
