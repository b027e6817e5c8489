"""What a place of the disk file says of its content, before the bytes of the page. Pure.

    magic | generation of the file | place | hash of the content | the host tier's own checksum | CRC-32

The CRC covers the other fields and the page. So a place that was half written, written for another file or another place, or
damaged gives nothing. The host tier's checksum is kept as it is: the page goes back with it, and is checked once more when it
is loaded to the device.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

BLOCK_BYTES = 4096  # what direct reads and writes must be multiples of
_FIELDS = struct.Struct("<8sQQQQ")
_SUM = struct.Struct("<I")
_MAGIC = b"tgpage01"
TAG_BYTES = 64  # so that the page begins where a line of the processor's cache does


def place_bytes(page_bytes: int) -> int:
    """Size of a place for pages of this size."""
    return -(-(TAG_BYTES + page_bytes) // BLOCK_BYTES) * BLOCK_BYTES


def page_of(buffer: np.ndarray, page_bytes: int) -> np.ndarray:
    """The bytes of the page in a buffer that holds a place."""
    return buffer[TAG_BYTES : TAG_BYTES + page_bytes]


def write_tag(buffer: np.ndarray, page_bytes: int, generation: int, place: int, content_hash: int, check: int) -> None:
    """Put the tag before the page that the buffer has."""
    fields = _FIELDS.pack(_MAGIC, generation, place, content_hash, check)
    total = zlib.crc32(page_of(buffer, page_bytes).data, zlib.crc32(fields))
    tag = fields + _SUM.pack(total)
    buffer[: len(tag)] = np.frombuffer(tag, np.uint8)


def names(buffer: np.ndarray, generation: int, place: int, content_hash: int) -> bool:
    """True if the tag says that this content is at this place."""
    return _FIELDS.unpack_from(buffer.data)[:4] == (_MAGIC, generation, place, content_hash)


def read_tag(buffer: np.ndarray, page_bytes: int) -> int | None:
    """The host tier's checksum of the page in the buffer; None if the CRC is another."""
    fields = buffer[: _FIELDS.size].data
    (wanted,) = _SUM.unpack_from(buffer.data, _FIELDS.size)
    if zlib.crc32(page_of(buffer, page_bytes).data, zlib.crc32(fields)) != wanted:
        return None
    return _FIELDS.unpack_from(buffer.data)[4]
