"""The breaker, the pace and the waiting attempts of each replica, as one gateway knows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from actors.gateway.dispatch.breakers.breaker import Breaker, BreakerState
from actors.gateway.dispatch.breakers.pace import Pace
from actors.gateway.dispatch.breakers.start_watch import Started, StartWatch

_SLOWER = 2.0
_DEATH_WEIGHT = 2.0  # of a death: three within seconds open the breaker


class _One:
    """What is known of one replica."""

    def __init__(self) -> None:
        self.breaker, self.pace, self.watch = Breaker(), Pace(), StartWatch()


class ReplicaHealth:
    """All replicas, by the names of their schedulers. A replica without an outcome is healthy."""

    def __init__(self) -> None:
        self._by_name: dict[str, _One] = {}

    def _of(self, name: str) -> _One:
        return self._by_name.setdefault(name, _One())

    def state(self, name: str, now_s: float) -> BreakerState:
        """The state of a replica's breaker."""
        one = self._by_name.get(name)
        return BreakerState.CLOSED if one is None else one.breaker.state(now_s)

    def are_closed(self, names: Iterable[str]) -> bool:
        """True if the breakers of all these replicas are closed, as they nearly always are."""
        by_name = self._by_name
        return all(name not in by_name or by_name[name].breaker.is_closed for name in names)

    def admitted(self, names: Iterable[str], now_s: float) -> list[str]:
        """Those of these replicas whose breaker is closed. If none is, all of them: a breaker alone refuses nothing."""
        all_names = list(names)
        return [name for name in all_names if self.state(name, now_s) is BreakerState.CLOSED] or all_names

    def probe_due(self, names: Iterable[str], now_s: float) -> str:
        """The first of these replicas that one sequence should be sent to, to learn whether it works again; "": none."""
        by_name = self._by_name
        return next((name for name in names if name in by_name and by_name[name].breaker.wants_probe(now_s)), "")

    def s_per_token(self, name: str) -> float | None:
        """Expected seconds for each token of work; None if it is not known."""
        one = self._by_name.get(name)
        return None if one is None else one.pace.s_per_token

    def slowness(self, names: Sequence[str]) -> dict[str, float]:
        """How many times as long as the quickest of these replicas each of them takes for its work; 1: about as long, or not
        known. Small differences come from what the replicas were given."""
        paces = {name: pace_s for name in names if (pace_s := self.s_per_token(name)) is not None}
        if len(paces) < 2:
            return dict.fromkeys(names, 1.0)
        least_s = min(paces.values())
        ratios = {name: paces.get(name, least_s) / least_s if least_s else 1.0 for name in names}
        return {name: ratio if ratio > _SLOWER else 1.0 for name, ratio in ratios.items()}

    def n_openings(self, name: str) -> int:
        """How often a replica's breaker has opened."""
        one = self._by_name.get(name)
        return 0 if one is None else one.breaker.n_openings

    @property
    def n_waiting(self) -> int:
        """Attempts that wait for their first token."""
        return sum(len(one.watch) for one in self._by_name.values())

    def waiting(self, name: str) -> list[int]:
        """The attempts that wait for their first token at a replica, the oldest first."""
        one = self._by_name.get(name)
        return [] if one is None else one.watch.attempts()

    # -- what happens to attempts ---------------------------------------------------------------------------------

    def sent(
        self,
        name: str,
        attempt: int,
        n_tokens: int,
        n_ids: int,
        now_s: float,
        *,
        is_probe: bool,
        least_s: float = 0.0,
    ) -> None:
        """An attempt was sent. `n_tokens`: its work and that before it; `n_ids`: tokens that its sequence has already;
        `least_s`: what is before it takes so long in any case."""
        one = self._of(name)
        one.watch.sent(attempt, n_tokens, n_ids, one.pace.limit_s(n_tokens, least_s), now_s)
        if is_probe:
            one.breaker.begin_probe(attempt)

    def began(self, name: str, attempt: int, n_ids: int, now_s: float) -> None:
        """An attempt has its first token; its sequence has `n_ids` tokens. What is not told here, `look` finds later."""
        one = self._by_name.get(name)
        if one is not None and (started := one.watch.closed(attempt, n_ids, now_s)[1]) is not None:
            self._began(one, started, now_s)

    def closed(self, name: str, attempt: int, n_ids: int, now_s: float) -> None:
        """An attempt is over, or is taken away, and its sequence has `n_ids` tokens. Without a new one this proves nothing: its
        client has left, or what has failed is told by `failed`."""
        one = self._by_name.get(name)
        if one is None:
            return
        was_waiting, started = one.watch.closed(attempt, n_ids, now_s)
        if started is not None:
            self._began(one, started, now_s)
        elif was_waiting:
            one.breaker.left(attempt)

    def failed(self, name: str, attempt: int, now_s: float) -> bool:
        """A replica has refused or lost an attempt. Returns True if its breaker opens."""
        return self._of(name).breaker.failed(attempt, now_s)

    def died(self, name: str, now_s: float) -> bool:
        """A scheduler has died of itself. Returns True if its breaker opens."""
        return self._of(name).breaker.failed(0, now_s, _DEATH_WEIGHT)

    def look(self, name: str, n_ids_of: Callable[[int], int], now_s: float) -> tuple[int, bool]:
        """Learn from the attempts that have begun or are late, for `n_ids_of` see `StartWatch.look`. Call it several times a
        second. Returns (number of attempts that have become late, whether the breaker opens because of them)."""
        one = self._of(name)
        started, late = one.watch.look(n_ids_of, now_s)
        opens = [one.breaker.was_late(attempt, now_s) for attempt in late]
        for begun in started:
            self._began(one, begun, now_s)
        return len(late), any(opens)

    @staticmethod
    def _began(one: _One, begun: Started, now_s: float) -> None:
        if not begun.has_passed:
            one.pace.observe(begun.wait_s, begun.n_tokens)
        if begun.was_late:
            one.breaker.left(begun.attempt)
        else:
            one.breaker.succeeded(begun.attempt, now_s)
