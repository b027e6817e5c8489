"""The trial of a device: a built-in sequence that a gang computes alone, before any request, after a death or a refusal that a
device may have caused. Pure.

A device, driver or kernel that faults on every step looks, request by request, as if each of them killed its gang. A gang that
dies of the canary proves that no request is to blame.
"""

from __future__ import annotations

import msgspec

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.seal_table import NO_SEALS
from actors.scheduler.planning.batch_planner import BatchPlanner
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.policies.fcfs import FcfsPolicy
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
    """One run of the built-in sequence, in slot 0 and a page of its own. No other sequence may run before `end`."""

    def __init__(
        self, ledger: ForgettingLedger, capacity: EngineCapacity, settings: SchedulerSettings, times: StepTimes
    ) -> None:
        self._ledger = ledger
        self._queues = SequenceQueues(FcfsPolicy(), n_slots=1)
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
        no_tier = HostTier(self._queues, settings, StepCost(), NO_SEALS)
        self._planner = BatchPlanner(self._queues, ledger, capacity, pace, settings, times, no_tier)

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


class DeviceTrial:
    """When a gang has to compute the canary, and what came of the last one."""

    def __init__(self) -> None:
        self.is_needed = False  # the last gang may have died of a computation
        self.has_failed = False  # the last canary was not computed
        self._canary: Canary | None = None  # being computed

    @property
    def is_running(self) -> bool:
        """True while the canary is being computed."""
        return self._canary is not None

    @property
    def pages(self) -> list[int]:
        """The pages that the canary holds; none while it does not run."""
        return self._canary.pages if self._canary is not None else []

    def begin(self, ledger: ForgettingLedger, capacity: EngineCapacity, settings: SchedulerSettings, times: StepTimes) -> None:
        """A gang is ready: begin a canary if one is needed."""
        if self.is_needed:
            self._canary = Canary(ledger, capacity, settings, times)

    def plan(self, epoch: int, step: int) -> PlannedStep | None:
        """The next step of the canary; None when there is none, or while it does not run."""
        return self._canary.plan(epoch, step) if self._canary is not None else None

    def step_done(self) -> bool:
        """A step of the canary is done. Returns True if it was the last one: the gang can compute, and the trial is over."""
        if self._canary is None or not self._canary.is_computed:
            return False
        self.interrupt()
        self.is_needed = self.has_failed = False
        return True

    def interrupt(self) -> None:
        """The canary, if it runs, is not computed further: it gives its page back."""
        if self._canary is not None:
            self._canary.end()
            self._canary = None
