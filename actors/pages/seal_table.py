"""Which content each KV page has, in shared memory that outlives its scheduler: the next scheduler adopts these pages. The
host tier and the disk tier have tables of their own, with a record for each of their places.

    header    magic, memory generation, number of pages             three uint64, padded to 64 bytes
    record i  of page i: content hash, parent's hash, tokens        two uint64, PAGE_TOKENS int32

A page is recorded when the step that completes it has been applied, and its record is erased before a plan is sent that may
overwrite it. A process can die between two stores. So the hash is stored last, at once; hash 0 means no record. Nobody reads
100,000 records while streams wait: the next scheduler reads the tokens of a page when it looks that page up, and compares all
of a record with what it looks for, so a damaged record costs a cache miss.

An open page, which is partly filled, has the number of its tokens (1 to 15) in the place of the hash, as long as somebody
holds it. A page that nobody holds has no record unless it is full.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from messages.steps import PAGE_TOKENS

_MAGIC = 0x5EA1_7AB1_E002
_HEADER = struct.Struct("<3Q")
_HEADER_BYTES = 64
_RECORD = struct.Struct(f"<QQ{PAGE_TOKENS * 4}s")
_RECORD_BYTES = _RECORD.size
_HASH = struct.Struct("@Q")  # native: one store, where "<Q" would be one of each byte
_HASH_BYTES = _HASH.size
_RECORD_WORDS = _RECORD_BYTES // _HASH_BYTES
_CONTENT = struct.Struct(f"<Q{PAGE_TOKENS * 4}s")  # a record without its hash


class SealedPages(NamedTuple):
    """Pages with records, in ascending order, and the hashes of their contents and of the pages before them: [n] each."""

    pages: np.ndarray  # int64
    hashes: np.ndarray  # uint64
    parents: np.ndarray  # uint64


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
        words = np.frombuffer(buffer, np.uint64, self.n_pages * _RECORD_WORDS, _HEADER_BYTES)
        self._words = words.reshape(self.n_pages, _RECORD_WORDS)  # hash, parent, ...
        self._tokens = self._words.view(np.int32)[:, -PAGE_TOKENS:]

    def record(self, page: int, content_hash: int, parent: int, tokens: bytes) -> None:
        """Note the content of a page, which its finished steps have written. Its last record has been erased."""
        start = _HEADER_BYTES + page * _RECORD_BYTES
        _CONTENT.pack_into(self._buffer, start + _HASH_BYTES, parent, tokens)
        _HASH.pack_into(self._buffer, start, content_hash)

    def erase(self, page: int) -> None:
        """Forget the content of a page."""
        _HASH.pack_into(self._buffer, _HEADER_BYTES + page * _RECORD_BYTES, 0)

    def erase_all(self, pages: list[int]) -> None:
        """Forget the content of these pages."""
        self._words[pages, 0] = 0

    def clear(self) -> None:
        """Forget the content of all pages: the table describes no memory any more."""
        end = table_bytes(self.n_pages)
        self._buffer[_HEADER_BYTES:end] = bytes(end - _HEADER_BYTES)

    def record_open(self, page: int, n_tokens: int, parent: int, tokens: bytes) -> None:
        """Note that a page is filled up to `n_tokens` (1 to 15). tokens: those, and the one after them, if it is known."""
        start = _HEADER_BYTES + page * _RECORD_BYTES
        _HASH.pack_into(self._buffer, start, 0)
        _CONTENT.pack_into(self._buffer, start + _HASH_BYTES, parent, tokens)
        _HASH.pack_into(self._buffer, start, n_tokens)

    def extend_open(self, pages: np.ndarray, n_tokens: np.ndarray, newest: np.ndarray) -> np.ndarray:
        """Note that pages are filled up to `n_tokens` by one more token, the one that was `newest` before.

        Args: [n] each: different pages; tokens in each, 0 to 15 (0 is ignored); the id of the token after them.
        Returns: [n] bool, False where the record did not stand one token before: there nothing is noted.
        """
        follows = (n_tokens > 1) & (self._words[pages, 0] == (n_tokens - 1).astype(np.uint64))
        pages, n_tokens = pages[follows], n_tokens[follows]
        self._tokens[pages, n_tokens] = newest[follows]
        self._words[pages, 0] = n_tokens
        return follows

    def read(self) -> SealedPages:
        """Every full page that has a record."""
        return self._of(np.flatnonzero(self._words[:, 0] >= PAGE_TOKENS))

    def read_open(self) -> SealedPages:
        """Every partly filled page that has a record, with the number of its tokens in the place of the hash."""
        numbers = self._words[:, 0]
        return self._of(np.flatnonzero((numbers > 0) & (numbers < PAGE_TOKENS)))

    def _of(self, pages: np.ndarray) -> SealedPages:
        return SealedPages(pages, self._words[pages, 0], self._words[pages, 1])

    def content(self, page: int) -> tuple[int, int, bytes]:
        """(hash, parent's hash, token bytes) in the record of a page."""
        return _RECORD.unpack_from(self._buffer, _HEADER_BYTES + page * _RECORD_BYTES)

    def n_equal(self, pages: list[int], contents: Sequence[tuple[int, int, bytes]]) -> int:
        """How many of these pages, from the first one on, have the content in their records that stands at the same place."""
        if not pages:
            return 0
        hashes, parents, tokens = zip(*contents[: len(pages)], strict=True)
        records = self._words[pages]
        is_equal = (records[:, 0] == np.array(hashes, np.uint64)) & (records[:, 1] == np.array(parents, np.uint64))
        wanted = np.frombuffer(b"".join(tokens), np.uint64).reshape(len(pages), -1)
        is_equal &= (records[:, 2:] == wanted).all(axis=1)
        return len(pages) if is_equal.all() else int(is_equal.argmin())

    def open_tokens(self, page: int) -> bytes:
        """The tokens that a partly filled page has; b"" if its record says something else."""
        n_tokens, _, tokens = self.content(page)
        return tokens[: n_tokens * self._tokens.itemsize] if n_tokens < PAGE_TOKENS else b""


def table_bytes(n_pages: int) -> int:
    """Bytes of a table of this many pages."""
    return _HEADER_BYTES + n_pages * _RECORD_BYTES


def format_table(buffer: mmap.mmap | bytearray, generation: int, n_pages: int) -> SealTable:
    """An empty table in a zeroed buffer."""
    _HEADER.pack_into(buffer, 0, _MAGIC, generation, n_pages)
    return SealTable(buffer)


def private_table(generation: int, n_pages: int) -> SealTable:
    """An empty table in memory of this process."""
    return format_table(bytearray(table_bytes(n_pages)), generation, n_pages)


def create_table(generation: int, n_pages: int) -> tuple[int, SealTable]:
    """(descriptor of new shared memory, the empty table in it). Raises: OSError when the machine has no memory for it."""
    descriptor = os.memfd_create("seal-table", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, table_bytes(n_pages))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return descriptor, format_table(mmap.mmap(descriptor, table_bytes(n_pages)), generation, n_pages)
    except BaseException:
        os.close(descriptor)
        raise


def map_table(descriptor: int) -> SealTable:
    """The table behind a descriptor. Raises: ValueError or OSError when it is none."""
    return SealTable(mmap.mmap(descriptor, 0))


class Seals(Protocol):
    """Where a table outlives its scheduler."""

    def left(self) -> SealTable | None:
        """The table that an earlier scheduler has left; None if there is none."""
        return None

    def open(self, generation: int, n_pages: int) -> SealTable | None:
        """The table of this memory generation: the one that was left, or an empty one; None without a vault."""
        return None


class NoSeals(Seals):
    """Without a vault nothing outlives the scheduler."""


class SealTables(NamedTuple):
    """Where the tables of one replica outlive its scheduler: of the device's pages, and of the places of the host tier and the
    disk tier."""

    pages: Seals
    places: Seals
    disk_places: Seals


NO_SEALS = SealTables(NoSeals(), NoSeals(), NoSeals())
