"""Frames: the bytes of a journal's files. Each entry is one frame with its own checksum. Pure.

    magic (4 bytes)  kind (1)  payload length (4)  number of the request (8)  journal time (8)  checksum (8)  payload

The checksum is BLAKE2b over everything but the magic. Its key is the salt in the file's name, so that no client can write
bytes into a prompt that a reader would take for a frame. A damaged frame costs itself only: the reader looks for the next one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

_MAGIC = b"\xf7TJ2"  # the last character is the version of the format
_FACTS = struct.Struct("<BIQd")
_CHECKSUM_BYTES = 8
_HEAD_BYTES = len(_MAGIC) + _FACTS.size + _CHECKSUM_BYTES


class Kind(IntEnum):
    """What a frame records."""

    HEADER = 1  # a process begins to write this file: its clock, and the next number of a request
    REQUEST = 2  # everything about one unfinished request up to now; replaces all earlier frames of its number
    STEP = 3  # tokens and endings of one message of a scheduler
    FINISH = 4  # the final state of a request
    FORGET = 5  # no client can ask for a request any more
    ANSWER = 6  # as REQUEST, of a finished request
    REMEMBERED = 7  # all prompts and callers that have harmed workers; its number is 0, which no request has
    READ = 8  # the client of a finished request has the whole answer


# `Kind(value)` takes as long as the rest of a small frame
_KINDS = {kind.value: kind for kind in Kind}


class Frame(NamedTuple):
    """One entry as read. `time_s`: the journal's clock when it was written."""

    kind: Kind
    number: int
    time_s: float
    payload: bytes


class Damage(NamedTuple):
    """Bytes of a file that are no frame. At the end of a file this is how a kill inside a write looks."""

    offset: int
    n_bytes: int
    is_at_end: bool


def encode_frame(kind: Kind, number: int, time_s: float, payload: bytes, salt: bytes) -> bytes:
    """The bytes of one frame. `salt`: 1 to 64 bytes."""
    facts = _FACTS.pack(kind, len(payload), number, time_s)
    return b"".join((_MAGIC, facts, _checksum(_keyed(salt), facts, payload), payload))


def read_frames(data: bytes, salt: bytes) -> Iterator[Frame | Damage]:
    """Yields the frames of a file in order, and what lies between them."""
    at, damaged_from, keyed = 0, -1, _keyed(salt)
    while at < len(data):
        found = _frame_at(data, at, keyed)
        if found is not None:
            if damaged_from >= 0:
                yield Damage(damaged_from, at - damaged_from, is_at_end=False)
                damaged_from = -1
            frame, at = found
            yield frame
            continue
        damaged_from = at if damaged_from < 0 else damaged_from
        at = data.find(_MAGIC, at + 1)
        if at < 0:
            break
    if damaged_from >= 0:
        yield Damage(damaged_from, len(data) - damaged_from, is_at_end=True)


def foreign_version(data: bytes) -> str:
    """The version of the format in which a file without a frame of this one is written; "" if it is not of another version.

    Two frames must say it: one flipped byte is damage.
    """
    head = _MAGIC[:-1]
    versions = [data[at + len(head) : at + len(_MAGIC)] for at in _places(data, head)]
    foreign = max(set(versions), key=versions.count, default=b"")
    return foreign.decode("latin-1") if foreign != _MAGIC[-1:] and versions.count(foreign) > 1 else ""


def _places(data: bytes, what: bytes) -> Iterator[int]:
    at = data.find(what)
    while at >= 0:
        yield at
        at = data.find(what, at + 1)


def _frame_at(data: bytes, at: int, keyed: blake2b) -> tuple[Frame, int] | None:
    """The frame that begins at `at` and the offset after it; None if there is no whole one."""
    start = at + _HEAD_BYTES
    if not data.startswith(_MAGIC, at) or start > len(data):
        return None
    facts = data[at + len(_MAGIC) : start - _CHECKSUM_BYTES]
    kind, length, number, time_s = _FACTS.unpack(facts)
    stop = start + length
    if stop > len(data):
        return None
    payload = data[start:stop]
    if data[start - _CHECKSUM_BYTES : start] != _checksum(keyed, facts, payload):
        return None
    known = _KINDS.get(kind)
    return None if known is None else (Frame(known, number, time_s, payload), stop)  # None: what a later release records


def _keyed(salt: bytes) -> blake2b:
    """What the checksums of a file begin with: made once, because the key is hashed as a block of its own."""
    return blake2b(digest_size=_CHECKSUM_BYTES, key=salt)


def _checksum(keyed: blake2b, facts: bytes, payload: bytes) -> bytes:
    digest = keyed.copy()
    digest.update(facts)
    digest.update(payload)
    return digest.digest()
