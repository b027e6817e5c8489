"""A built-in sequence that a gang computes alone, before any request, after a death or a refusal that a device may cause. Pure.

A device, driver or kernel that faults on every step looks, request by request, as if each of them killed its gang. A gang that
dies of the canary proves that no request is to blame.
"""

from __future__ import annotations

import msgspec

from actors.pages.page_ledger import PageLedger
from actors.scheduler.planning.batch_planner import BatchPlanner
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.sequences.policy import LastInOrder, PriorityOrder
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.steps import EngineCapacity
from messages.wire.arrays import int32s

_PROMPT = (1, 2, 3)
_MAX_TOKENS = 2  # one step of prefill, one of decode


class Canary:
    """One run of the canary, in slot 0 and a page of its own. No other sequence may run before `end`."""

    def __init__(self, ledger: PageLedger, capacity: EngineCapacity, settings: SchedulerSettings, times: StepTimes) -> None:
        self._ledger = ledger
        self._queues = SequenceQueues(PriorityOrder(), n_slots=1)
        submit = Submit(
            attempt=0,
            request="canary",
            tokens=int32s([token % capacity.vocabulary for token in _PROMPT]),
            n_prompt=len(_PROMPT),
            sampling=Sampling(temperature=0.0),
            terms=Terms(max_tokens=_MAX_TOKENS, speculation=False),
        )
        self._sequence = Sequence("", submit, number=0)
        self._queues.add(self._sequence)
        settings = msgspec.structs.replace(settings, prefix_reuse=False)  # its page is not kept
        pace = PromptPace(StepCost(), capacity.max_step_tokens, settings)
        self._planner = BatchPlanner(self._queues, ledger, capacity, LastInOrder(), pace, settings, times)

    def plan(self, epoch: int, step: int) -> PlannedStep | None:
        """Its next step, or None when there is none."""
        return self._planner.plan(epoch, step, lambda sequence: True)

    @property
    def is_computed(self) -> bool:
        """True if all its tokens are known: the gang can compute."""
        return self._sequence.n_generated >= _MAX_TOKENS

    @property
    def pages(self) -> list[int]:
        """The pages that it holds."""
        return self._sequence.pages

    def end(self) -> None:
        """Give its page back."""
        self._ledger.release(self._queues.finish(self._sequence))
