"""Copies of neighbours together are the same copies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.pages.copy_runs import CopyRun, runs_of
from gpu_workers.pages.copy_stream import PlaceCopies

_NONE = np.zeros((0, 0), np.uint8)


def _runs(pages: list[int], places: list[int], span: int) -> list[CopyRun]:
    return runs_of(PlaceCopies(np.array(pages, np.int32), _NONE, np.array(places, np.int32), span))


def test_neighbours_are_one_copy_within_a_span() -> None:
    assert _runs([7, 6, 9, 8, 5], [3, 2, 5, 4, 1], 4) == [CopyRun(5, 1, 3), CopyRun(8, 4, 2)]
    assert _runs([3, 4, 5], [0, 1, 2], 1) == [CopyRun(3, 0, 1), CopyRun(4, 1, 1), CopyRun(5, 2, 1)]
    assert _runs([5, 4, 3], [0, 1, 2], 8) == [CopyRun(5, 0, 1), CopyRun(4, 1, 1), CopyRun(3, 2, 1)]
    assert _runs([], [], 8) == []


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), unique_by=(lambda copy: copy[1],)), st.integers(1, 5))
def test_runs_are_the_same_copies(copies: list[tuple[int, int]], span: int) -> None:
    runs = _runs([page for page, _ in copies], [place for _, place in copies], span)
    assert sorted((run.page + i, run.place + i) for run in runs for i in range(run.n)) == sorted(copies)
    assert all(run.place // span == (run.place + run.n - 1) // span for run in runs)
