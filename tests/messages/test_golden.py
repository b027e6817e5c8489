"""The bytes of every message are pinned: a change is a visible diff of a golden file, and any msgpack library reads them.

To accept a deliberate change of the protocol: `python -m tests.messages.test_golden`, then look at the diff.
"""

from __future__ import annotations

from pathlib import Path

import msgpack
import numpy as np
import pytest

from messages.routes import INTERNAL_KINDS
from messages.wire.message import Message
from tests.support.examples.messages import INTERNAL, PUBLIC, PUBLIC_KINDS, codec_of, same

GOLDEN = Path(__file__).parent.parent / "golden"


def to_bytes(message: Message) -> bytes:
    body, arrays = codec_of(message).encode(message)
    return len(body).to_bytes(4, "little") + body + arrays


def test_every_kind_has_an_example() -> None:
    assert {type(m) for m in INTERNAL} == set(INTERNAL_KINDS)
    assert {type(m) for m in PUBLIC} == set(PUBLIC_KINDS)


@pytest.mark.parametrize("message", [*INTERNAL, *PUBLIC], ids=lambda m: type(m).__name__)
def test_bytes_are_the_golden_ones(message: Message) -> None:
    assert to_bytes(message) == (GOLDEN / f"{type(message).__name__}.bin").read_bytes()


@pytest.mark.parametrize("message", [*INTERNAL, *PUBLIC], ids=lambda m: type(m).__name__)
def test_golden_bytes_are_read_by_us_and_by_plain_msgpack(message: Message) -> None:
    data = (GOLDEN / f"{type(message).__name__}.bin").read_bytes()
    size = int.from_bytes(data[:4], "little")
    body, arrays = data[4 : 4 + size], data[4 + size :]
    assert same(codec_of(message).decode(body, arrays), message)
    plain = msgpack.unpackb(body)
    assert plain.pop("kind") == type(message).__name__
    assert set(plain) == set(message.__struct_fields__)
    for name, value in plain.items():
        if isinstance(getattr(message, name), np.ndarray):
            dtype, offset, count = value
            assert np.array_equal(np.frombuffer(arrays, dtype, count, offset), getattr(message, name))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for example in (*INTERNAL, *PUBLIC):
        (GOLDEN / f"{type(example).__name__}.bin").write_bytes(to_bytes(example))
