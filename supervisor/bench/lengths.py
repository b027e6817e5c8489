"""Distributions of lengths in tokens: `128`, `uniform:64:256`, `file:PATH` (whole numbers, one a line, drawn at random)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Lengths:
    """A distribution and how it was written."""

    text: str
    draw: Callable[[random.Random], int]  # one length in tokens, at least 1


def parse_lengths(text: str) -> Lengths:
    """Read a distribution.

    Raises: ValueError naming what was expected.
    """
    kind, _, rest = text.partition(":")
    if kind == "uniform":
        low_text, _, high_text = rest.partition(":")
        low, high = _whole(low_text, text), _whole(high_text, text)
        if low > high:
            raise ValueError(f"lengths: expected uniform:LOW:HIGH with LOW at most HIGH, got {text!r}")
        return Lengths(text, lambda rng: rng.randint(low, high))
    if kind == "file":
        values = [_whole(line, text) for line in Path(rest).read_text(encoding="utf-8").split()]
        if not values:
            raise ValueError(f"lengths: expected at least one number in {rest}, got none")
        return Lengths(text, lambda rng: rng.choice(values))
    fixed = _whole(rest if kind == "fixed" else text, text)
    return Lengths(text, lambda rng: fixed)


def _whole(word: str, text: str) -> int:
    if not word.strip().isdecimal() or int(word) < 1:
        raise ValueError(f"lengths: expected N, fixed:N, uniform:LOW:HIGH or file:PATH with whole numbers from 1, got {text!r}")
    return int(word)
