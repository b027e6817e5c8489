"""The base of every message: a frozen struct, tagged by its kind; and the shared field limits.

Processes of two releases talk to each other while a server is restarted child by child. So a message of a server may have
fields that its receiver does not know: they are ignored. What a client asks for is never ignored: there an unknown field is
refused.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.wire.arrays import check_arrays

MAX_SHORT_CHARACTERS = 256
MAX_LONG_CHARACTERS = 65_536
MAX_TEXT_CHARACTERS = 8_388_608
ShortText = Annotated[str, msgspec.Meta(max_length=MAX_SHORT_CHARACTERS)]
LongText = Annotated[str, msgspec.Meta(max_length=MAX_LONG_CHARACTERS)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
TraceId = Annotated[bytes, msgspec.Meta(max_length=16)]  # 16 bytes as in W3C Trace Context, or none
CallerId = Annotated[bytes, msgspec.Meta(max_length=8)]  # a digest of who has sent a request, or none
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
NO_TRACE = b""


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag=True, kw_only=True, gc=False):
    """A message between actors. Its kind on the wire is its class name; its array fields travel in a frame of their own."""

    def __post_init__(self) -> None:
        check_arrays(self)


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value inside a message. It has no kind and is never sent alone."""


class StrictMessage(Message, frozen=True, forbid_unknown_fields=True):
    """A message that clients may send. An unknown field is refused by name: what it asks for would be left out silently."""


class StrictPart(Part, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value inside what a client asks for. Fields with their default values are not sent, so an older receiver refuses only
    what really uses a new one. The default of a field must never change."""
