"""The file of kept answers, from which the next incarnation of the directory goes on. A damaged file counts as none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from actors.cache_directory.answers.all_answers import Answer
from actors.cache_directory.similar.similar_answers import SimilarAnswer
from messages.caches.equal import KeptAnswer

_MAGIC = b"tardigrade answers 2\n"  # of this format; another one is not read
_DIGEST_BYTES = 16


class _FileContent(msgspec.Struct, frozen=True):
    equal: list[KeptAnswer]
    similar: list[SimilarAnswer]


_decoder = msgspec.msgpack.Decoder(_FileContent)


def write_answers(path: Path, answers: Sequence[Answer]) -> None:
    """Write a file that only this user can read. Raises: OSError."""
    equal = [answer for answer in answers if isinstance(answer, KeptAnswer)]
    similar = [answer for answer in answers if isinstance(answer, SimilarAnswer)]
    body = msgspec.msgpack.encode(_FileContent(equal, similar))
    digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(_MAGIC + digest)
        file.write(body)


def read_answers(path: Path) -> list[Answer]:
    """The answers of a file, of each kind in their order; none if there is no such file, or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[start:]
    if data[:start] != _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest():
        return []
    try:
        kept = _decoder.decode(body)
    except msgspec.DecodeError:  # of another release
        return []
    return [*kept.equal, *kept.similar]
