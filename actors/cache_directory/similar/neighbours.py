"""The nearest of many vectors, by cosine similarity. Few are compared one by one, more are in a graph (HNSW: Malkov and
Yashunin, 2018; by the library usearch).

A graph reserves 16 MiB of address space and misses a neighbour now and then, so small sets have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from usearch.index import Index

_MOST_WITHOUT_GRAPH = 512  # comparing so many takes as long as a look-up in the graph
_FIRST_ROWS = 4


class Neighbours:
    """Vectors of one length, each with a number of its own. `dimensions`: their length."""

    def __init__(self, dimensions: int, most_without_graph: int = _MOST_WITHOUT_GRAPH) -> None:
        self.dimensions, self._most = dimensions, most_without_graph
        self._numbers: list[int] = []  # of the rows, while there is no graph
        self._rows = np.empty((0, dimensions), np.float32)
        self._graph: Index | None = None

    def __len__(self) -> int:
        return len(self._numbers) if self._graph is None else len(self._graph)

    def add(self, number: int, vector: np.ndarray) -> None:
        """Add a vector, float32 [dimensions], under a number that none has."""
        if self._graph is None and len(self._numbers) >= self._most:
            self._graph = _graph_of(np.array(self._numbers, np.uint64), self._rows[: len(self._numbers)])
            self._numbers, self._rows = [], self._rows[:0]
        if self._graph is not None:
            self._graph.add(number, _unit(vector), threads=1)
            return
        n = len(self._numbers)
        if n == len(self._rows):
            rows = np.empty((min(max(_FIRST_ROWS, 2 * n), self._most), self.dimensions), np.float32)
            rows[:n] = self._rows
            self._rows = rows
        self._rows[n] = _unit(vector)
        self._numbers.append(number)

    def remove(self, number: int) -> None:
        """Remove the vector of this number."""
        if self._graph is not None:
            self._graph.remove(number)
            return
        row, last = self._numbers.index(number), len(self._numbers) - 1
        self._rows[row], self._numbers[row] = self._rows[last], self._numbers[last]
        self._numbers.pop()

    def nearest(self, vector: np.ndarray, most: int) -> list[tuple[int, float]]:
        """(number, cosine similarity) of at most `most` vectors, the nearest first. `vector`: float32 [dimensions]."""
        if not len(self):
            return []
        if self._graph is not None:
            found = self._graph.search(_unit(vector), most, threads=1)
            return [(int(key), 1.0 - float(distance)) for key, distance in zip(found.keys, found.distances, strict=True)]
        similarities = self._rows[: len(self._numbers)] @ _unit(vector)
        order = np.argsort(-similarities)[:most].tolist()
        return [(self._numbers[row], float(similarities[row])) for row in order]


def _unit(vector: np.ndarray) -> np.ndarray:
    """The vector with length 1; a vector of zeros stays one, and is near to nothing."""
    length = float(np.linalg.norm(vector))
    return (vector / length if length else vector).astype(np.float32, copy=False)


def _graph_of(numbers: np.ndarray, rows: np.ndarray) -> Index:
    # imported here: a server without this cache neither needs the library nor pays 0.2 s for it
    from usearch.index import Index

    graph = Index(ndim=rows.shape[1], metric="cos", dtype="f16")
    graph.add(numbers, rows, threads=1)
    return graph
