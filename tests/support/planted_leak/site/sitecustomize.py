"""Run by every Python process that has this directory in PYTHONPATH: each name of a request that it makes costs memory and, now
and then, a descriptor for ever."""

from __future__ import annotations

import os
import secrets

_BYTES, _DESCRIPTOR_EVERY = 32 << 10, 50
_make, _kept = secrets.token_hex, []


def _leaking(nbytes: int | None = None) -> str:
    _kept.append(bytearray(b"x" * _BYTES))
    if len(_kept) % _DESCRIPTOR_EVERY == 0:
        _kept.append(os.open(os.devnull, os.O_RDONLY))
    return _make(nbytes)


secrets.token_hex = _leaking
