"""Which queued work should leave its replica. Pure: the caller passes what each replica has to do.

    expected wait of a replica = tokens that wait there * seconds for each token there

Work leaves a replica whose wait is more than `_FACTOR` times that of the best one and `_SLACK_S` more, at `_LOOKS` looks in a
row: as much as makes both waits equal, shared by the gateways. So replicas that are nearly equal exchange nothing, and work
does not go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_FACTOR, _SLACK_S = 2.0, 1.0
_LOOKS = 2
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One replica: what it has to do, and how fast it is."""

    queue_tokens: int  # that wait there
    s_per_token: float | None  # None: not known
    takes_work: bool  # new sequences may go there


class QueueBalance:
    """The queues of all replicas as one gateway sees them, by the names of their schedulers."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}  # in a row at which work should have left

    def tokens_to_move(self, facts: Mapping[str, QueueFacts], n_gateways: int) -> dict[str, int]:
        """How many tokens of work this gateway should take from which replicas now."""
        known = [one.s_per_token for one in facts.values() if one.s_per_token is not None]
        targets = [one for one in facts.values() if one.takes_work]
        if not targets:
            self._looks.clear()
            return {}
        usual_s = sum(known) / len(known) if known else 0.0

        def wait_s(one: QueueFacts) -> float:
            return one.queue_tokens * (usual_s if one.s_per_token is None else one.s_per_token)

        best = min(targets, key=wait_s)
        found: dict[str, int] = {}
        for name, one in facts.items():
            if not one.takes_work:
                found[name] = _ALL
            elif wait_s(one) > _FACTOR * wait_s(best) + _SLACK_S:
                self._looks[name] = self._looks.get(name, 0) + 1
                if self._looks[name] >= _LOOKS:
                    del self._looks[name]
                    both_s = (one.s_per_token or usual_s) + (best.s_per_token or usual_s)
                    found[name] = int((wait_s(one) - wait_s(best)) / both_s / n_gateways)
            else:
                self._looks.pop(name, None)
        return found
