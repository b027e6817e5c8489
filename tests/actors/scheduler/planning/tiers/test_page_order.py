"""Pages for the places of a load, so that runs of places go to runs of pages."""

from __future__ import annotations

from actors.scheduler.planning.tiers.page_order import beside_each_other


def test_neighbours_go_to_neighbours() -> None:
    assert beside_each_other([21, 20, 5, 22], [8, 7, 6, 30]) == [21, 20, 5, 22]
    assert beside_each_other([20, 21, 22], [9, 8, 7]) == [22, 21, 20]
    assert beside_each_other([], []) == []
