"""A circuit breaker of one replica. Pure: the caller passes the time.

    closed ----(failures of late: enough, and at least half of all outcomes)----> open, for `_FIRST_OPEN_S`
       ^       (or deaths of late: enough, whatever was answered between them)      |
       |       (or late first tokens: enough in a row, whatever was before them)    |
       |                                                                            |  that time is over
       |                                                                            v
       +------------(the probe is answered in time)---------------------------- half-open: one sequence is let through
                                                                                    |  the probe fails
                            open, for twice the time as before <--------------------+

A probe that its client leaves proves nothing: another one may follow.
"""

from __future__ import annotations

from enum import Enum

from actors.gateway.dispatch.balancing.decayed_sum import DecayedSum

_HALF_LIFE_S = 5.0  # an outcome counts half after this time
_LEAST_FAILURES, _LEAST_SHARE = 4.0, 0.5
_LEAST_IN_A_ROW = 2.0  # as a decayed sum: three late ones within a few seconds
_FIRST_OPEN_S, _LONGEST_OPEN_S = 1.0, 30.0


class BreakerState(Enum):
    """Whether new sequences go to a replica. The values are those of the metric."""

    CLOSED = 0  # all of them
    HALF_OPEN = 1  # one at a time
    OPEN = 2  # none, unless no replica is better


class Breaker:
    """The outcomes of one replica. It begins closed."""

    def __init__(self) -> None:
        self._failures, self._outcomes = DecayedSum(_HALF_LIFE_S), DecayedSum(_HALF_LIFE_S)
        self._deaths = DecayedSum(_HALF_LIFE_S)  # a probe does not end it: what answers one may still die again and again
        # First tokens that were late, since one was in time. Those in time before the replica became slow say nothing of it:
        # they were many, and few sequences are sent there since, so late ones would never be half of all outcomes.
        self._late = DecayedSum(_HALF_LIFE_S)
        self._open_s = _FIRST_OPEN_S  # of the next time
        self._until_s: float | None = None  # while it is not closed: when it is half-open
        self._probe = 0  # the attempt that is let through, 0: none
        self.n_openings = 0

    def state(self, now_s: float) -> BreakerState:
        """The state as of `now_s`."""
        if self._until_s is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_s < self._until_s else BreakerState.HALF_OPEN

    @property
    def is_closed(self) -> bool:
        """True if the state is `CLOSED`, at whatever time."""
        return self._until_s is None

    def wants_probe(self, now_s: float) -> bool:
        """True if one sequence should go there now, to learn whether the replica works again."""
        return not self._probe and self.state(now_s) is BreakerState.HALF_OPEN

    def begin_probe(self, attempt: int) -> None:
        """This attempt is the probe."""
        self._probe = attempt

    def succeeded(self, attempt: int, now_s: float) -> None:
        """An attempt was answered in time."""
        self._outcomes.add(1.0, now_s)
        self._late = DecayedSum(_HALF_LIFE_S)
        if attempt == self._probe and self._until_s is not None:
            self._until_s, self._probe, self._open_s = None, 0, _FIRST_OPEN_S
            self._failures = DecayedSum(_HALF_LIFE_S)

    def failed(self, attempt: int, now_s: float, weight: float = 1.0) -> bool:
        """An attempt was refused, lost or too late; 0: a death took all that were open, which count as `weight` failures.
        Returns True if the breaker opens."""
        if not attempt:
            self._deaths.add(weight, now_s)
        self._outcomes.add(weight, now_s)
        self._failures.add(weight, now_s)
        if self._until_s is not None:
            is_probe_over = bool(self._probe) and attempt in (0, self._probe)
            if is_probe_over:
                self._open(now_s)
            return is_probe_over
        failures = self._failures.value(now_s)
        is_most = failures >= _LEAST_FAILURES and failures >= _LEAST_SHARE * self._outcomes.value(now_s)
        if is_most or (not attempt and self._deaths.value(now_s) >= _LEAST_FAILURES):
            self._open(now_s)
        return self._until_s is not None

    def was_late(self, attempt: int, now_s: float) -> bool:
        """The first token of an attempt has not come in time. Returns True if the breaker opens."""
        self._late.add(1.0, now_s)
        if self.failed(attempt, now_s):
            return True
        if self._until_s is None and self._late.value(now_s) >= _LEAST_IN_A_ROW:
            self._open(now_s)
            return True
        return False

    def left(self, attempt: int) -> None:
        """An attempt is over without an outcome: its client has left, or it was taken elsewhere."""
        if attempt == self._probe:
            self._probe = 0

    def _open(self, now_s: float) -> None:
        self._until_s, self._probe, self.n_openings = now_s + self._open_s, 0, self.n_openings + 1
        self._open_s = min(2 * self._open_s, _LONGEST_OPEN_S)
