"""Bits that flip in the files of a journal, between its frames or within them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from actors.gateway.journal.frames import Damage, Kind, encode_frame, read_frames
from actors.gateway.journal.segments import segments_in

_NEWEST = 8  # frames, about requests that are not finished yet
_COSTLY = (Kind.REQUEST, Kind.ANSWER)  # what is in them is lost with them, as promised


def flip_bit(folder: Path, chance: random.Random) -> bool:
    """Flip one bit of a frame whose damage must cost nobody an answer. Returns False if there is none yet."""
    places = [(segment.path, *place) for segment in segments_in(folder) for place in _places(segment.path, segment.salt)]
    if not places:
        return False
    path, first, n_bytes = chance.choice(places[-_NEWEST:])
    with path.open("r+b") as file:
        file.seek(first + chance.randrange(n_bytes))
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return True


def _places(path: Path, salt: bytes) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of each frame that is not costly."""
    at = 0
    for found in read_frames(path.read_bytes(), salt):
        if isinstance(found, Damage):
            at = found.offset + found.n_bytes
            continue
        n_bytes = len(encode_frame(found.kind, found.number, found.time_s, found.payload, salt))
        if found.kind not in _COSTLY:
            yield at, n_bytes
        at += n_bytes
