"""What follows when a sequence is found to kill workers or schedulers: its prompt is refused, equal sequences end.

A caller whose sequences do this again and again is slowed down; other callers notice nothing. The journal records all of this,
so the next incarnation of a gateway knows it too.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from actors.gateway.dispatch.dispatcher import Dispatcher
from actors.gateway.dispatch.post import Post
from actors.gateway.journal.journal import Journal
from actors.gateway.poison.harm_budget import HarmBudget
from actors.gateway.poison.quarantine import Quarantine, is_same_computation
from actors.gateway.poison.remembered import Remembered
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import Ended, RequestSpec


class PoisonHandling:
    """Handles the sequences of one gateway that kill workers or schedulers, and remembers them for `memory_s`.

    `journal`: it is open, and has what earlier processes have remembered. `end` ends a sequence.
    """

    def __init__(
        self,
        memory_s: float,
        dispatcher: Dispatcher,
        post: Post,
        journal: Journal,
        end: Callable[[GrowingSequence, Ended], None],
    ) -> None:
        self.quarantine, self._budget = Quarantine(memory_s), HarmBudget(memory_s)
        self._dispatcher, self._post, self._journal, self._end = dispatcher, post, journal, end
        journal.remembered = self._remembered
        self._log = structlog.get_logger()
        dispatcher.failover.on_sick = self._clear_replica
        self._restore()

    def _restore(self) -> None:
        """Begin with what earlier processes have remembered, and record it in this journal if some of it was adopted."""
        for one in self._journal.found:
            self.quarantine.restore(one.prompts, self._post.now_s())
            self._budget.restore(one.callers, self._post.now_s())
        if any(one.prompts or one.callers for one in self._journal.found[1:]):
            self._journal.remember()
        self._journal.found = []

    def check_caller(self, caller: bytes) -> None:
        """Return if this caller may send requests now. Raises: Refusal."""
        self._budget.check(caller, self._post.now_s())

    def check(self, spec: RequestSpec) -> None:
        """Return if no prompt of this request is quarantined. Raises: Refusal."""
        self.quarantine.check(spec, self._post.now_s())

    def blamed(self, sequence: GrowingSequence, detail: str) -> None:
        """A sequence faults schedulers: end it."""
        self._end(sequence, Ended(reason="quarantined", code="quarantined", detail=detail))
        self.quarantined(sequence, detail, frozenset())

    def quarantined(self, sequence: GrowingSequence, detail: str, replicas: frozenset[str]) -> None:
        """A sequence has ended as quarantined, because workers of these replicas died. Refuse its prompt from now on, and end
        the running ones of the same caller that compute the same.
        """
        spec, now_s = sequence.spec, self._post.now_s()
        self._log.error("sequence quarantined", detail=detail, caller=spec.terms.caller.hex(), **spec.log_fields)
        self.quarantine.add(spec, sequence.index, len(sequence.ids), now_s, replicas)
        self._budget.charge(spec.terms.caller, replicas, now_s)
        self._journal.remember()
        ended = Ended(reason="quarantined", code="quarantined", detail=f"of an equal sequence: {detail}")
        self._dispatcher.end_all(lambda other: is_same_computation(sequence, other), ended, "quarantined")

    def _clear_replica(self, replica: str) -> None:
        """Blame no sequence for deaths at a sick replica."""
        is_quarantine_shorter, is_budget_smaller = self.quarantine.clear_replica(replica), self._budget.clear_replica(replica)
        if is_quarantine_shorter or is_budget_smaller:
            self._journal.remember()

    def _remembered(self) -> Remembered:
        now_s = self._post.now_s()
        return Remembered(self.quarantine.remembered(now_s), self._budget.remembered(now_s))
