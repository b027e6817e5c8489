"""What a place of the disk file says of its content, before the bytes of the page. Pure.

    magic | generation of the file | place | hash of the content | the host tier's own checksum | parent's hash | tokens
    CRC-32 of these | CRC-32 of these and the page

So a place that was half written, written for another file or another place, or damaged gives nothing. The first CRC is for who
looks at tags alone. The host tier's checksum is kept as it is: the page goes back with it, and is checked once more when it is
loaded to the device.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

from messages.steps import PAGE_TOKENS

BLOCK_BYTES = 4096  # what direct reads and writes must be multiples of
_TOKEN_BYTES = PAGE_TOKENS * 4
_FIELDS = struct.Struct(f"<8sQQQQQ{_TOKEN_BYTES}s")
_SUMS = struct.Struct("<II")
_MAGIC = b"tgpage02"
TAG_BYTES = _FIELDS.size + _SUMS.size  # 120: the page begins where a word does


class Content(NamedTuple):
    """What a page is about. tokens: int32 bytes; parent and tokens are 0 where the scheduler has not told them."""

    hash: int
    parent: int = 0
    tokens: bytes = bytes(_TOKEN_BYTES)


def place_bytes(page_bytes: int) -> int:
    """Size of a place for pages of this size."""
    return -(-(TAG_BYTES + page_bytes) // BLOCK_BYTES) * BLOCK_BYTES


def page_of(buffer: np.ndarray, page_bytes: int) -> np.ndarray:
    """The bytes of the page in a buffer that holds a place."""
    return buffer[TAG_BYTES : TAG_BYTES + page_bytes]


def write_tag(buffer: np.ndarray, page_bytes: int, generation: int, place: int, content: Content, check: int) -> None:
    """Put the tag before the page that the buffer has."""
    fields = _FIELDS.pack(_MAGIC, generation, place, content.hash, check, content.parent, content.tokens)
    own = zlib.crc32(fields)
    tag = fields + _SUMS.pack(own, zlib.crc32(page_of(buffer, page_bytes).data, own))
    buffer[: len(tag)] = np.frombuffer(tag, np.uint8)


def names(buffer: np.ndarray, generation: int, place: int, content_hash: int) -> bool:
    """True if the tag says that this content is at this place."""
    return _FIELDS.unpack_from(buffer.data)[:4] == (_MAGIC, generation, place, content_hash)


def read_tag(buffer: np.ndarray, page_bytes: int) -> int | None:
    """The host tier's checksum of the page in the buffer; None if the CRC is another."""
    own = zlib.crc32(buffer[: _FIELDS.size].data)
    if _SUMS.unpack_from(buffer.data, _FIELDS.size) != (own, zlib.crc32(page_of(buffer, page_bytes).data, own)):
        return None
    return _FIELDS.unpack_from(buffer.data)[4]


def read_content(buffer: np.ndarray, generation: int, place: int) -> Content | None:
    """The content that this place should have, by the tag alone; None if it has none, or if nobody has told its tokens."""
    if _SUMS.unpack_from(buffer.data, _FIELDS.size)[0] != zlib.crc32(buffer[: _FIELDS.size].data):
        return None
    *facts, content_hash, _, parent, tokens = _FIELDS.unpack_from(buffer.data)
    content = Content(content_hash, parent, tokens)
    return content if facts == [_MAGIC, generation, place] and content != Content(content_hash) else None
