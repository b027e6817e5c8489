"""The replica that has most of the prompt cached, unless it has much more to do than the others.

    a replica counts as a holder of the prefix while all of this holds:
        its load           <= _LOAD_FACTOR * the least load + _LOAD_REQUESTS * this work
        its tokens of late <= the mean of all + this work
        the caller's tokens there, if others wait for a replica <= _CALLER_FACTOR * the mean of all + this work
    of the holders that count, the one with most of the prompt; of equals, and where none counts, the least loaded

So a prefix that many ask for comes to a second replica as soon as the first one has more than its share. From then on the cache
directory names both, and the work goes to the one with less to do. The same holds for what a caller has: a replica shares only
its own slots among callers, so one whose requests all have the same beginning must not be at a single replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.gateway.dispatch.balancing.least_tokens import least_loaded
from actors.gateway.dispatch.balancing.strategy import BalancingStrategy, Candidate, Choice, ChoiceReason

_LOAD_FACTOR, _LOAD_REQUESTS = 2, 8  # a wait that is longer than that costs more than the prefill that is saved
_CALLER_FACTOR = 1.1  # a caller with many sequences need not have exactly as many everywhere


class PrefixFirst(BalancingStrategy):
    """The longest cached prefix wins, up to a ceiling by load."""

    def choose(self, candidates: Sequence[Candidate], n_tokens: int) -> Choice:
        """As `BalancingStrategy.choose`."""
        most = max(one.pages for one in candidates)
        if not most:
            return Choice(least_loaded(candidates, n_tokens).name, ChoiceReason.LOAD)
        load_ceiling = _LOAD_FACTOR * min(one.load_tokens for one in candidates) + _LOAD_REQUESTS * n_tokens
        share_ceiling = sum(one.recent_tokens for one in candidates) / len(candidates) + n_tokens
        caller_ceiling = _CALLER_FACTOR * sum(one.caller_tokens for one in candidates) / len(candidates) + n_tokens
        usable = [
            one
            for one in candidates
            if one.pages
            and one.load_tokens <= load_ceiling
            and one.recent_tokens <= share_ceiling
            and one.caller_tokens <= caller_ceiling
        ]
        if not usable:
            return Choice(least_loaded(candidates, n_tokens).name, ChoiceReason.SPREAD)
        longest = max(one.pages for one in usable)
        chosen = least_loaded([one for one in usable if one.pages == longest], n_tokens)
        return Choice(chosen.name, ChoiceReason.PREFIX)
