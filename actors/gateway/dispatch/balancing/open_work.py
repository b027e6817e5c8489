"""How much this gateway has given each replica, and how much a replica has to do by that and by its reports. Pure.

    load = tokens in the newest report + tokens that this gateway has sent and that the report cannot know

A scheduler confirms an attempt (Taken) before it reports a load that has it, on the same link. So a report has what was
confirmed before it, and lacks the rest. Small changes are not reported, and large ones within `_REPORTED_S`; so what was
confirmed longer ago is in the last report too, or does not matter.

Where no scheduler reports, the load is that of this gateway's own attempts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from actors.gateway.dispatch.balancing.decayed_sum import DecayedSum

_RECENT_HALF_LIFE_S = 15.0  # shares are even over a minute
_REPORTED_S = 0.2
_FIRST_OUTPUT_TOKENS, _OUTPUT_WEIGHT = 64.0, 0.05  # of an answer, before any has ended; weight of the newest in the mean


class _Work:
    """The attempts of this gateway at one replica, in tokens."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # by attempt
        self.open_tokens = 0
        self.by_caller: dict[bytes, int] = {}  # the same tokens, of callers that are told apart
        self.unconfirmed: dict[int, int] = {}  # the part of `open` that no Taken has come for
        self.unconfirmed_tokens = 0
        self.confirmed: deque[tuple[float, int]] = deque()  # of late: when, and how many
        self.confirmed_tokens = 0  # their sum: thousands may be confirmed between two reports
        self.recent = DecayedSum(_RECENT_HALF_LIFE_S)


class OpenWork:
    """The work at all replicas, by the names of their schedulers."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Work] = {}
        self._output_tokens = _FIRST_OUTPUT_TOKENS  # mean of an answer

    def expected_output(self, most_tokens: int) -> int:
        """How many tokens an answer of at most `most_tokens` probably has: as many as others had."""
        return max(min(most_tokens, int(self._output_tokens)), 0)

    def opened(self, name: str, attempt: int, n_tokens: int, now_s: float, caller: bytes = b"") -> None:
        """An attempt that brings this work goes to a replica. `caller`: b"" where callers are not told apart."""
        work = self._by_name.setdefault(name, _Work())
        if caller:
            work.by_caller[caller] = work.by_caller.get(caller, 0) + n_tokens
        work.open[attempt] = work.unconfirmed[attempt] = n_tokens
        work.open_tokens += n_tokens
        work.unconfirmed_tokens += n_tokens
        work.recent.add(n_tokens, now_s)

    def confirmed(self, name: str, attempt: int, now_s: float) -> None:
        """The scheduler has taken an attempt."""
        work = self._by_name.get(name)
        if work is not None and (n_tokens := work.unconfirmed.pop(attempt, None)) is not None:
            work.unconfirmed_tokens -= n_tokens
            work.confirmed.append((now_s, n_tokens))
            work.confirmed_tokens += n_tokens
            self._expire(work, now_s)

    def closed(self, name: str, attempt: int, caller: bytes = b"") -> None:
        """An attempt of this caller is over, or is taken away from its replica."""
        if (work := self._by_name.get(name)) is None:
            return
        n_tokens = work.open.pop(attempt, 0)
        work.open_tokens -= n_tokens
        work.unconfirmed_tokens -= work.unconfirmed.pop(attempt, 0)
        if caller:
            work.by_caller[caller] = work.by_caller.get(caller, 0) - n_tokens
            if not work.by_caller[caller]:
                del work.by_caller[caller]

    def answered(self, n_output: int) -> None:
        """An answer of so many tokens is complete."""
        self._output_tokens += _OUTPUT_WEIGHT * (n_output - self._output_tokens)

    def reported(self, name: str) -> None:
        """A scheduler has reported its load: that has what it has confirmed."""
        if (work := self._by_name.get(name)) is not None:
            work.confirmed.clear()
            work.confirmed_tokens = 0

    def of_attempt(self, name: str, attempt: int) -> int:
        """The work that an open attempt has brought."""
        work = self._by_name.get(name)
        return 0 if work is None else work.open.get(attempt, 0)

    def load_tokens(self, name: str, reported_tokens: int | None, now_s: float) -> int:
        """Tokens to do at a replica. `reported_tokens`: by its scheduler's newest report; None: it has sent none."""
        work = self._by_name.get(name)
        if work is None:
            return reported_tokens or 0
        if reported_tokens is None:
            return work.open_tokens
        self._expire(work, now_s)
        return reported_tokens + work.unconfirmed_tokens + work.confirmed_tokens

    def tokens_of(self, name: str, caller: bytes) -> int:
        """Tokens of the open attempts that a caller has at a replica."""
        work = self._by_name.get(name)
        return 0 if work is None else work.by_caller.get(caller, 0)

    def by_caller(self, name: str) -> Mapping[bytes, int]:
        """Tokens of the open attempts of each caller at a replica."""
        work = self._by_name.get(name)
        return {} if work is None else work.by_caller

    def recent_tokens(self, name: str, now_s: float) -> float:
        """Tokens that this gateway has given a replica of late."""
        work = self._by_name.get(name)
        return 0.0 if work is None else work.recent.value(now_s)

    @staticmethod
    def _expire(work: _Work, now_s: float) -> None:
        while work.confirmed and work.confirmed[0][0] < now_s - _REPORTED_S:
            work.confirmed_tokens -= work.confirmed.popleft()[1]
