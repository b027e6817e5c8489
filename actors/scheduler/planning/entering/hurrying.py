"""Prompts that may keep others waiting, such as those of a higher priority. Pure.

While such a prompt is computed, the others get no part of the time of prompts, this time is not limited for their sake, and
every second plan leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.scheduler.planning.entering.entry import SlotEntry
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State


class Hurrying:
    """The hurried prompts of one gang, as the policy of the queues names them."""

    def __init__(self, queues: SequenceQueues, entry: SlotEntry) -> None:
        self._queues, self._entry = queues, entry
        self._has_left_out = False  # the last plan had no rows of sequences that a hurried prompt kept waiting

    def first_of(self, builder: PlanBuilder, prompts: list[Sequence], may_run: Callable[[Sequence], bool]) -> Sequence | None:
        """The prompt that is first in order, in its slot, if it may keep others in this plan waiting. It is added to
        `prompts` if it enters now."""
        policy = self._queues.policy
        waiting = self._queues.waiting.first(1) if self._queues.has_slot else []
        first = min((s for s in (*prompts, *waiting) if may_run(s)), key=policy.key, default=None)
        if first is None or not policy.may_hurry(first):
            return None
        if not any(policy.is_urgent(first, one) for one in self._queues.running):
            return None
        if first.state is State.WAITING:
            if not self._entry.enter(builder, first):
                return None
            prompts.append(first)
        return first

    def kept_going(self, decoding: list[Sequence], hurried: Sequence | None) -> list[Sequence]:
        """The decoding sequences that get a token. Those that a hurried prompt may keep waiting are left out of every second
        plan at most."""
        if hurried is None or self._has_left_out:
            self._has_left_out = False
            return decoding
        kept = [s for s in decoding if not self._queues.policy.is_urgent(hurried, s)]
        self._has_left_out = len(kept) < len(decoding)
        return kept
