"""How long a batch of texts may take before it counts as hung, learnt from batches that have ended. Pure.

Batches are told apart by their shape: number of tokens and longest text, each as a power of two. A shape that is not known is
estimated from the known ones: a batch takes at most in proportion to its tokens, and attention at most in proportion to the
longest text. On a GPU nothing is estimated, because the first batch of a shape may wait for a compiler.

The shortest of the last times counts, and on CPU cores the time of processors, because all else shows only what else the
machine had to do. A batch that takes longer for that reason is not killed: after the limit the supervisor counts nothing but
the process's own time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

_FACTOR = 10.0  # a batch that takes this many times as long as expected hangs
_MEMORY = 1.02  # the shortest time of a shape is forgotten by 2 % with each batch
_LONG_TEXT_TOKENS = 512  # from this length on attention may take as long as all the rest of a batch
_LEAST_S = 1e-6  # no batch takes less

Shape = tuple[int, int]  # bit lengths of tokens and of the longest text


class BatchTimes:
    """The times of one embedder. `least_hang_s`: no batch counts as hung before. `on_cores`: it computes on CPU cores."""

    def __init__(self, least_hang_s: float, *, on_cores: bool) -> None:
        self._least_hang_s, self._on_cores = least_hang_s, on_cores
        self._shortest_s: dict[Shape, float] = {}  # of the last batches

    def now_s(self) -> float:
        """A clock for `add`: that of this process's work where it computes on cores, else the monotonic one."""
        return time.process_time() if self._on_cores else time.monotonic()

    def add(self, texts: Sequence[np.ndarray], took_s: float) -> None:
        """A batch has ended."""
        shape = _shape_of(texts)
        self._shortest_s[shape] = max(min(took_s, self._shortest_s.get(shape, took_s) * _MEMORY), _LEAST_S)

    def limit_s(self, texts: Sequence[np.ndarray]) -> float:
        """How long these texts may take together; 0 if nothing is known."""
        expected_s = self._expected_s(_shape_of(texts))
        return max(_FACTOR * expected_s, self._least_hang_s) if expected_s else 0.0

    def _expected_s(self, shape: Shape) -> float:
        known_s = self._shortest_s.get(shape)
        if known_s is not None or not self._on_cores:
            return known_s or 0.0
        return min((took_s * _growth(known, shape) for known, took_s in self._shortest_s.items()), default=0.0)


def _shape_of(texts: Sequence[np.ndarray]) -> Shape:
    lengths = [len(text) for text in texts]
    return sum(lengths).bit_length(), max(lengths).bit_length()


def _growth(known: Shape, wanted: Shape) -> float:
    """How many times as long as a batch of shape `known` one of shape `wanted` may take; at least 1."""
    longest, known_longest = 1 << wanted[1], 1 << known[1]
    attention = (_LONG_TEXT_TOKENS + longest) / (_LONG_TEXT_TOKENS + known_longest)
    return 2.0 ** max(wanted[0] - known[0], 0) * max(attention, 1.0)
