"""The index of vectors alone: how often its first neighbour is the right one, and how long a look-up takes."""

from __future__ import annotations

import time

import msgspec
import numpy as np

from actors.cache_directory.similar.neighbours import Neighbours

_NEIGHBOURS = 10


class IndexFigures(msgspec.Struct, frozen=True):
    """An index of `entries` vectors. Times in microseconds."""

    kind: str
    entries: int
    recall: float  # of the first neighbour, against a comparison with all
    p50_us: float
    p99_us: float
    add_us: float  # mean of one vector


def index_figures(kind: str, known: np.ndarray, asked: np.ndarray, most_without_graph: int) -> IndexFigures:
    """`known`: the vectors in the index, `asked`: those that are looked up, float32 [n, dimensions] of length 1."""
    neighbours = Neighbours(known.shape[1], most_without_graph)
    began_s = time.perf_counter()
    for number, vector in enumerate(known):
        neighbours.add(number, vector)
    add_us = (time.perf_counter() - began_s) / len(known) * 1e6
    right, times_us, n_right = (asked @ known.T).argmax(axis=1).tolist(), list[float](), 0
    for vector, expected in zip(asked, right, strict=True):
        began_s = time.perf_counter()
        found = neighbours.nearest(vector, _NEIGHBOURS)
        times_us.append((time.perf_counter() - began_s) * 1e6)
        n_right += found[0][0] == expected
    p50, p99 = np.quantile(times_us, [0.5, 0.99]).tolist()
    return IndexFigures(kind, len(known), n_right / len(asked), p50, p99, add_us)
