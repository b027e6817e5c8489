"""The attempts of one gateway that wait for their first token, and which of them have waited too long. Pure.

`StartWatch.look` is called several times a second. A longer time between two calls is a pause of this process, in which tokens
may have come unread: no attempt is late because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_PAUSE_S = 1.0


@dataclass(slots=True)
class _AwaitedStart:
    """One attempt: when it was sent, its work with that before it in tokens, the tokens that its sequence had then."""

    sent_s: float
    n_tokens: int
    n_ids: int
    limit_s: float
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt has its first token, after this wait. `was_late`: that was reported before, or is so now. `has_passed`: older
    ones still wait, so the work that was before it says nothing of its wait."""

    attempt: int
    wait_s: float
    n_tokens: int
    was_late: bool
    has_passed: bool


class StartWatch:
    """The waiting attempts of one replica, in the order of their submission."""

    def __init__(self) -> None:
        self._waiting: dict[int, _AwaitedStart] = {}
        self._looked_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def attempts(self) -> list[int]:
        """The waiting attempts, the oldest first."""
        return list(self._waiting)

    def sent(self, attempt: int, n_tokens: int, n_ids: int, limit_s: float, now_s: float) -> None:
        """An attempt was sent. `n_tokens`: its work and that before it; `n_ids`: tokens that its sequence has already;
        `limit_s`: a longer wait is too long."""
        if not self._waiting:
            self._looked_s = now_s
        self._waiting[attempt] = _AwaitedStart(now_s, n_tokens, n_ids, limit_s)

    def closed(self, attempt: int, n_ids: int, now_s: float) -> tuple[bool, Started | None]:
        """An attempt is over, and its sequence has `n_ids` tokens. Returns whether it was waiting, and how it has begun if it
        has."""
        one = self._waiting.get(attempt)
        if one is None:
            return False, None
        oldest = next((other for other in self._waiting.values() if not other.is_late), one)  # a late one may be stuck
        del self._waiting[attempt]
        return True, None if n_ids <= one.n_ids else _started(attempt, one, now_s, has_passed=oldest.sent_s < one.sent_s)

    def look(self, n_ids_of: Callable[[int], int], now_s: float) -> tuple[list[Started], list[int]]:
        """Returns the attempts that have a token since the last look, and those that have become late. `n_ids_of(attempt)`:
        tokens that its sequence has now."""
        gap_s, self._looked_s = now_s - self._looked_s, now_s
        paused_s = gap_s if gap_s > _PAUSE_S else 0.0
        started: list[Started] = []
        late: list[int] = []
        others_wait = False
        for attempt, one in list(self._waiting.items()):
            one.sent_s = min(one.sent_s + paused_s, now_s)
            wait_s = now_s - one.sent_s
            if n_ids_of(attempt) > one.n_ids:
                del self._waiting[attempt]
                started.append(_started(attempt, one, now_s, has_passed=others_wait))
                continue
            if wait_s > one.limit_s and not one.is_late:
                one.is_late = True
                late.append(attempt)
            others_wait = others_wait or not one.is_late
        return started, late


def _started(attempt: int, one: _AwaitedStart, now_s: float, *, has_passed: bool) -> Started:
    wait_s = now_s - one.sent_s
    return Started(attempt, wait_s, one.n_tokens, one.is_late or wait_s > one.limit_s, has_passed)
