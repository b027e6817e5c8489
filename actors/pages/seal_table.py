"""Which content each KV page has, in shared memory that outlives its scheduler: the next scheduler adopts these pages.

    header    magic, memory generation, number of pages             three uint64, padded to 64 bytes
    record i  of page i: content hash, parent's hash, tokens        two uint64, PAGE_TOKENS int32

A page is recorded when the step that completes it has been applied, and its record is erased before a plan is sent that may
overwrite it. A process can die between two stores, so a record counts only if its hash is the hash of its parent and tokens;
hash 0 means no record.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b
from itertools import compress
from operator import add
from typing import NamedTuple

import numpy as np

from actors.pages.page_hash import HASH_BYTES
from messages.steps import PAGE_TOKENS

_MAGIC = 0x5EA1_7AB1_E001
_HEADER = struct.Struct("<3Q")
_HEADER_BYTES = 64
_RECORD = struct.Struct(f"<QQ{PAGE_TOKENS * 4}s")
_RECORD_BYTES = _RECORD.size
_NO_RECORD = bytes(8)


class SealedPage(NamedTuple):
    """A page with known content: the arguments of `PageLedger.seal`."""

    page: int
    content_hash: int
    parent: int
    tokens: bytes


class SealTable:
    """The records of one memory generation, over a buffer of `table_bytes(n_pages)` bytes."""

    def __init__(self, buffer: mmap.mmap | bytearray) -> None:
        """Use the table that `buffer` holds; its header has its generation and size. Raises: ValueError when there is none."""
        if len(buffer) < _HEADER_BYTES:
            raise ValueError(f"seal table: expected at least {_HEADER_BYTES} bytes, got {len(buffer)}")
        magic, self.generation, self.n_pages = _HEADER.unpack_from(buffer)
        if magic != _MAGIC or len(buffer) < table_bytes(self.n_pages):
            raise ValueError(f"seal table: expected the records of {self.n_pages} pages, got {len(buffer)} other bytes")
        self._buffer = buffer

    def record(self, page: int, content_hash: int, parent: int, tokens: bytes) -> None:
        """Note the content of a page, which its finished steps have written."""
        _RECORD.pack_into(self._buffer, _HEADER_BYTES + page * _RECORD_BYTES, content_hash, parent, tokens)

    def erase(self, page: int) -> None:
        """Forget the content of a page."""
        start = _HEADER_BYTES + page * _RECORD_BYTES
        self._buffer[start : start + 8] = _NO_RECORD

    def clear(self) -> None:
        """Forget the content of all pages: the table describes no memory any more."""
        end = table_bytes(self.n_pages)
        self._buffer[_HEADER_BYTES:end] = bytes(end - _HEADER_BYTES)

    def read(self) -> list[SealedPage]:
        """Every page whose record is whole, in the order of pages. There may be 100,000 pages, and streams wait meanwhile: it
        takes about 1 µs for each."""
        records = np.frombuffer(self._buffer, np.uint8, self.n_pages * _RECORD_BYTES, _HEADER_BYTES).reshape(self.n_pages, -1)
        pages = np.flatnonzero(records[:, :HASH_BYTES].any(axis=1))
        data = records[pages].tobytes()
        # the hash of a page is that of the bytes that follow it here, see `page_hash`
        hashed = records[pages, HASH_BYTES:].tobytes()
        step = _RECORD_BYTES - HASH_BYTES
        digests = [blake2b(hashed[at : at + step], digest_size=HASH_BYTES).digest() for at in range(0, len(hashed), step)]
        is_whole = np.frombuffer(b"".join(digests), "<u8") == np.frombuffer(data, "<u8")[:: _RECORD_BYTES // 8]
        rows = map(add, zip(pages.tolist()), _RECORD.iter_unpack(data))
        return [*map(SealedPage._make, compress(rows, is_whole.tolist()))]


def table_bytes(n_pages: int) -> int:
    """Bytes of a table of this many pages."""
    return _HEADER_BYTES + n_pages * _RECORD_BYTES


def format_table(buffer: mmap.mmap | bytearray, generation: int, n_pages: int) -> SealTable:
    """An empty table in a zeroed buffer."""
    _HEADER.pack_into(buffer, 0, _MAGIC, generation, n_pages)
    return SealTable(buffer)


def create_table(generation: int, n_pages: int) -> tuple[int, SealTable]:
    """(descriptor of new shared memory, the empty table in it). Raises: OSError when the machine has no memory for it."""
    descriptor = os.memfd_create("seal-table", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, table_bytes(n_pages))
        return descriptor, format_table(mmap.mmap(descriptor, table_bytes(n_pages)), generation, n_pages)
    except BaseException:
        os.close(descriptor)
        raise


def map_table(descriptor: int) -> SealTable:
    """The table behind a descriptor. Raises: ValueError or OSError when it is none."""
    return SealTable(mmap.mmap(descriptor, 0))
