"""The nearest vectors, with and without a graph, beside a comparison with all of them."""

from __future__ import annotations

import numpy as np
import pytest

from actors.cache_directory.similar.neighbours import Neighbours

DIMENSIONS = 32


def vectors(n: int, seed: int = 1) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((n, DIMENSIONS)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("most_without_graph", [10_000, 50])
def test_nearly_every_first_neighbour_is_the_right_one(most_without_graph: int) -> None:
    known = vectors(600)
    asked = known + 0.1 * vectors(600, seed=2)
    neighbours = Neighbours(DIMENSIONS, most_without_graph)
    for number, vector in enumerate(known):
        neighbours.add(number, vector)
    right = (asked @ known.T).argmax(axis=1).tolist()
    found = [neighbours.nearest(vector, 10)[0][0] for vector in asked]
    assert sum(a == b for a, b in zip(found, right, strict=True)) >= 0.98 * len(known)


@pytest.mark.parametrize("most_without_graph", [10_000, 4])
def test_similarities_are_cosines_the_greatest_first(most_without_graph: int) -> None:
    known, asked = vectors(20), vectors(1, seed=3)[0]
    neighbours = Neighbours(DIMENSIONS, most_without_graph)
    for number, vector in enumerate(known):
        neighbours.add(number, 5.0 * vector)
    found = neighbours.nearest(3.0 * asked, 20)
    assert [similarity for _, similarity in found] == sorted((similarity for _, similarity in found), reverse=True)
    for number, similarity in found:
        assert similarity == pytest.approx(float(known[number] @ asked), abs=2e-3)


@pytest.mark.parametrize("most_without_graph", [10_000, 4])
def test_what_was_removed_is_not_found(most_without_graph: int) -> None:
    known = vectors(12)
    neighbours = Neighbours(DIMENSIONS, most_without_graph)
    for number, vector in enumerate(known):
        neighbours.add(number, vector)
    for number in (0, 11, 5):
        neighbours.remove(number)
    assert len(neighbours) == 9
    assert {number for number, _ in neighbours.nearest(known[5], 12)} == set(range(12)) - {0, 5, 11}
    for number in set(range(12)) - {0, 5, 11}:
        neighbours.remove(number)
    assert neighbours.nearest(known[5], 12) == []
    neighbours.add(40, known[5])
    assert [number for number, _ in neighbours.nearest(known[5], 12)] == [40]


def test_nothing_is_near_to_a_vector_of_zeros() -> None:
    neighbours = Neighbours(DIMENSIONS)
    neighbours.add(1, vectors(1)[0])
    assert neighbours.nearest(np.zeros(DIMENSIONS, np.float32), 10) == [(1, 0.0)]
