"""The names of a replica's ranks. It may have two gangs, one in each seat; only the active one is announced. Pure."""

from __future__ import annotations

from collections.abc import Container

from messages.ids import FIRST_SEAT, SEATS, actor_name, seat_of


class GangSeats:
    """Which gang of `replica`, of `tp` ranks, is active. `ranks`: the names of its ranks."""

    def __init__(self, replica: int, tp: int) -> None:
        self._by_seat = {seat: [actor_name("worker", replica, rank, seat) for rank in range(tp)] for seat in SEATS}
        self.ranks = self._by_seat[FIRST_SEAT]

    def rank_up(self, name: str, peers: Container[str]) -> bool:
        """An actor was announced. True if it completes a gang of this replica, which is the active one from now on: a standby
        gang is announced when it is promoted, after the proven death of the gang before it."""
        ranks = self._by_seat[seat_of(name)]
        if name not in ranks or not all(rank in peers for rank in ranks):
            return False
        self.ranks = ranks
        return True
