"""The base of every message: a frozen struct, tagged by its kind, refusing unknown fields; and the shared field limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.wire.arrays import check_arrays

ShortText = Annotated[str, msgspec.Meta(max_length=256)]
LongText = Annotated[str, msgspec.Meta(max_length=65_536)]
Text = Annotated[str, msgspec.Meta(max_length=8_388_608)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
TraceId = Annotated[bytes, msgspec.Meta(max_length=16)]  # 16 bytes as in W3C Trace Context, or none
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
NO_TRACE = b""


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A message between actors. Its kind on the wire is its class name; its array fields travel in a frame of their own."""

    def __post_init__(self) -> None:
        check_arrays(self)


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A value inside a message. It has no kind and is never sent alone."""
