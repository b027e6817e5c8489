"""The names of a replica's ranks. It may have two gangs, one in each seat; only the active one is announced. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

from messages.ids import FIRST_SEAT, SEATS, actor_name, seat_of
from messages.lifecycle.lifecycle import Peer


class GangSeats:
    """Which gang of `replica`, of `tp` ranks, is active. `ranks`: the names of its ranks."""

    def __init__(self, replica: int, tp: int) -> None:
        self._by_seat = {seat: [actor_name("worker", replica, rank, seat) for rank in range(tp)] for seat in SEATS}
        self.ranks = self._by_seat[FIRST_SEAT]
        self._lost: dict[str, int] = {}  # by rank: its newest incarnation that computes nothing more

    def rank_up(self, name: str, peers: Container[str]) -> bool:
        """An actor was announced. True if it completes a gang of this replica, which is the active one from now on: a standby
        gang is announced when it is promoted, after the proven death of the gang before it."""
        ranks = self._by_seat[seat_of(name)]
        if name not in ranks or not all(rank in peers for rank in ranks):
            return False
        self.ranks = ranks
        return True

    def lose(self, name: str, incarnation: int) -> bool:
        """A rank computes nothing more. False if that was known."""
        is_new = self._lost.get(name, 0) < incarnation
        if is_new:
            self._lost[name] = incarnation
        return is_new

    def living(self, peers: Mapping[str, Peer]) -> list[str]:
        """The ranks of the active gang that can compute."""
        return [rank for rank in self.ranks if rank in peers and peers[rank].incarnation > self._lost.get(rank, 0)]
