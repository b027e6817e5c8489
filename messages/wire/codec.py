"""Messages to frames and back: msgpack by msgspec, arrays in one raw frame. The only place that encodes or decodes.

A message between actors is three frames: [envelope, message, arrays]; a public one is two: [message, arrays]. An answer on a
link is one frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from messages.errors import WireError
from messages.wire.arrays import ArrayFrame, array_fields, read_array
from messages.wire.envelope import READABLE_VERSIONS, Envelope, LinkAnswer
from messages.wire.message import Message

M = TypeVar("M", bound=Message)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError, OverflowError)
_LARGE_BYTES = 64 << 10


@dataclass(frozen=True)
class _Vocabulary:
    """What all codecs of one set of message classes share: it takes several times as long to make as the rest of a codec."""

    kinds: Any  # their union
    names: frozenset[str]
    descriptors: msgspec.msgpack.Decoder[Any]  # of the fields that are arrays in any of them


@cache
def _vocabulary(kinds: tuple[type[Message], ...]) -> _Vocabulary:
    fields = sorted({name for kind in kinds for name, _, _ in array_fields(kind)})
    descriptors = msgspec.defstruct("_Descriptors", [(name, tuple[str, int, int] | None, None) for name in fields])
    names = frozenset(kind.__name__ for kind in kinds)
    return _Vocabulary(reduce(or_, kinds), names, msgspec.msgpack.Decoder(descriptors))


class Codec(Generic[M]):
    """Encodes and decodes one vocabulary (a set of message classes). Not thread-safe: one per mailbox or thread."""

    def __init__(self, kinds: Sequence[type[M]]) -> None:
        self._arrays = ArrayFrame()
        self._frame: bytes | memoryview = b""
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._array_out)
        self._vocabulary = _vocabulary(tuple(kinds))
        self._decoder = msgspec.msgpack.Decoder(self._vocabulary.kinds, dec_hook=self._array_in)

    def encode(self, message: M) -> tuple[bytes, bytes]:
        """The frames (message, arrays).

        Raises: WireError for a message outside of this vocabulary, which is a bug of the caller.
        """
        if type(message).__name__ not in self._vocabulary.names:
            raise WireError(f"kind: expected one of {sorted(self._vocabulary.names)}, got {type(message).__name__}")
        return self._encoder.encode(message), self._arrays.take()

    def decode(self, body: bytes | memoryview, arrays: bytes | memoryview) -> M:
        """The message that is encoded in two frames.

        Raises: WireError naming the field, what was expected and what came.
        """
        self._frame = arrays
        try:
            if len(body) > _LARGE_BYTES:
                # `read_array` gets whatever is in an array's field as objects: 16 MiB of empty lists take seconds
                self._vocabulary.descriptors.decode(body)
            return self._decoder.decode(body)
        except _DECODE_ERRORS as error:
            raise WireError(f"message: {error}") from None
        finally:
            self._frame = b""

    def _array_out(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._arrays.add(value)
        raise WireError(f"value: expected a field of the message's schema, got {type(value).__name__}")

    def _array_in(self, kind: type, value: Any) -> Any:
        return read_array(value, self._frame)


_envelope_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
_answer_decoder = msgspec.msgpack.Decoder(LinkAnswer)


def encode_envelope(envelope: Envelope) -> bytes:
    """The envelope as the first frame of a message."""
    return _envelope_encoder.encode(envelope)


def decode_envelope(frame: bytes | memoryview) -> Envelope:
    """The envelope in a first frame.

    Raises: WireError for another protocol version or anything that is not an envelope.
    """
    try:
        envelope = _envelope_decoder.decode(frame)
    except _DECODE_ERRORS as error:
        text = str(error)
        for index, field in enumerate(Envelope.__struct_fields__):
            text = text.replace(f"`$[{index}]`", f"`{field}`")
        raise WireError(f"envelope: {text}") from None
    if envelope.version not in READABLE_VERSIONS:
        raise WireError(f"version: expected {' or '.join(map(str, sorted(READABLE_VERSIONS)))}, got {envelope.version}")
    return envelope


def encode_answer(answer: LinkAnswer) -> bytes:
    """The one frame of an answer."""
    return _envelope_encoder.encode(answer)


def decode_answer(frame: bytes | memoryview) -> LinkAnswer:
    """The answer in a frame. Raises: WireError."""
    try:
        return _answer_decoder.decode(frame)
    except _DECODE_ERRORS as error:
        raise WireError(f"answer: {error}") from None
