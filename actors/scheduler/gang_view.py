"""The gang as its scheduler sees it: its life (epoch), its limits, its pages, the steps on their way, and who is suspected of
killing it. Pure: the actor says what was heard, and sends what comes out."""

from __future__ import annotations

from collections.abc import Callable

from actors.pages.page_ledger import PageLedger
from actors.scheduler.admission import usable_capacity
from actors.scheduler.batch_planner import BatchPlanner, PlannedStep, Row
from actors.scheduler.drafts import ReceivedDrafts
from actors.scheduler.look_ahead import LookAhead
from actors.scheduler.policy import LastInOrder, make_eviction
from actors.scheduler.probation import ForcedEnding, Probation, is_evidence
from actors.scheduler.queues import SequenceQueues
from actors.scheduler.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from actors.scheduler.step_tracker import Advance, StepTracker
from messages.lifecycle import Cause
from messages.steps import Capacity, EngineCapacity, Reset, Result, StepFailed

MayRun = Callable[[Sequence], bool]


class GangView:
    """Without a living gang there are no limits known for sure, no ledger and no planner; sequences wait."""

    def __init__(self, queues: SequenceQueues, settings: SchedulerSettings) -> None:
        self._queues, self._settings = queues, settings
        self.tracker, self.probation = StepTracker(), Probation(queues.order)
        self.capacity: EngineCapacity | None = None  # of the last gang; the next one has the same unless its machine changed
        self.ledger: PageLedger | None = None
        self._planner: BatchPlanner | None = None
        self._look_ahead = LookAhead(settings.plans_in_flight, lease_s=0.0)
        self._is_dirty = False
        self._last_words: list[tuple[Row, int]] = []  # what was on its way when the first rank died
        self._causes: list[Cause] = []  # how its ranks died, the first one first

    @property
    def is_alive(self) -> bool:
        """Can it be given steps?"""
        return self._planner is not None

    # -- lives -----------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> Reset:
        """All ranks are there: they start empty. Nothing may be on its way."""
        return Reset(epoch=self.tracker.begin_epoch())

    def begin(self, answer: Capacity) -> EngineCapacity:
        """The gang is empty and says what it can hold."""
        capacity = self.capacity = usable_capacity(answer.engine, self._settings.step_tokens)
        self.ledger = PageLedger(capacity.n_pages, make_eviction(self._settings.eviction))
        self._planner = BatchPlanner(self._queues, self.ledger, capacity, LastInOrder(), self._settings)
        self._look_ahead = LookAhead(self._settings.plans_in_flight, capacity.lease_s)
        self._queues.set_slots(capacity.n_slots)
        return capacity

    def rank_died(self, cause: Cause, is_last: bool) -> list[ForcedEnding]:
        """A rank is proven dead, and the gang with it. Returns who has to end for it, once the last rank is dead: a rank that
        is torn away brings others down with errors of their own, and news of those may come first."""
        if self.is_alive:
            self._last_words, self._causes = self.tracker.in_flight(), []
            self._forget()
        self._causes.append(cause)
        if not is_last:
            return []
        computed, self._last_words = self._last_words, []
        return self.probation.gang_died(computed) if is_evidence(self._causes) else []

    def refuse(self, failed: StepFailed) -> list[ForcedEnding]:
        """A plan was refused whole; a new epoch has to begin. Returns who has to end for it.

        Suspects are named by slot, as of that plan: meanwhile another sequence may sit there.
        """
        rows = self.tracker.of_step(int(failed.step)) or self.tracker.in_flight()
        slots = set(failed.suspects.tolist())
        suspects = [(row, stop) for row, stop in rows if row.slot in slots] or rows
        endings = self.probation.plan_refused(suspects, failed.reason[:1000])
        self._forget()
        return endings

    def _forget(self) -> None:
        """Whatever the gang held is gone; running sequences wait and are computed again."""
        self.tracker.begin_epoch()
        for sequence in list(self._queues.running):
            self._queues.preempt(sequence)
        self.ledger = self._planner = None

    # -- steps -----------------------------------------------------------------------------------------------------

    def plan(self, has_credit: MayRun, drafts: ReceivedDrafts | None) -> PlannedStep | None:
        """The next step, which is on its way with that; None: there is nothing to compute, or enough is on its way."""
        tracker, planner = self.tracker, self._planner
        if planner is None or self.capacity is None:
            return None
        if self.probation.is_active:
            planned = self._plan_apart(planner, has_credit, drafts) if not tracker.plans_in_flight else None
        elif self._look_ahead.is_enough_in_flight(tracker.plans_in_flight, tracker.steps_in_flight):
            return None
        else:
            is_drafting = drafts is not None and any(sequence.terms.speculation for sequence in self._queues.running)
            most_steps = self._look_ahead.lease_steps(self.capacity.max_lease_steps, is_drafting)
            planned = planner.plan(tracker.epoch, tracker.next_step, has_credit, drafts, most_steps)
        if planned is not None:
            tracker.sent(planned)
            self._is_dirty = True
        return planned

    def _plan_apart(self, planner: BatchPlanner, has_credit: MayRun, drafts: ReceivedDrafts | None) -> PlannedStep | None:
        """While anybody is on probation: it alone, or (when its gateway has no credit) all others without it."""
        at = (self.tracker.epoch, self.tracker.next_step)
        alone = self.probation.next_alone(has_credit)
        if alone is None:
            return planner.plan(*at, lambda s: has_credit(s) and not self.probation.holds(s), drafts)
        planned = planner.plan(*at, lambda s: s is alone, drafts)
        if planned is None:  # those that wait for it hold what it needs
            for sequence in [s for s in self._queues.running if s is not alone]:
                self._give_back(self._queues.preempt(sequence))
            planned = planner.plan(*at, lambda s: s is alone, drafts)
        return planned

    def apply(self, result: Result) -> list[Advance]:
        """One step is done. Raises: ValueError when it is not the one expected."""
        reaches = self.tracker.oldest() if self.probation.has_suspects else []
        self._look_ahead.add_step_time(result.compute_s)
        advances = self.tracker.apply(result)
        if reaches:
            self.probation.computed(reaches)
        return advances

    # -- sequences and pages -----------------------------------------------------------------------------------------

    def release(self, sequence: Sequence) -> None:
        """A sequence is over: out of the queues, its pages back, what is known of them kept."""
        if sequence.state is State.RUNNING and self._planner is not None:
            self._planner.seal_known(sequence, is_in_the_making=False)
        self._give_back(self._queues.finish(sequence))
        self.probation.forget(sequence)

    def audit(self) -> None:
        """When idle, and once after each time of work: the ledger must agree with every holder.

        Raises: AssertionError naming the page that is wrong.
        """
        if self._is_dirty and self.ledger is not None and not self.tracker.plans_in_flight:
            self.ledger.audit([s.pages for s in [*self._queues.running, *self._queues.waiting]])
            self._is_dirty = False

    def _give_back(self, pages: list[int]) -> None:
        if self.ledger is not None:
            self.ledger.release(pages)
