"""The gang as its scheduler sees it: its epoch, its capacity, its pages, the steps in flight, and the sequences that may have
killed it. Pure: the actor passes on what it has received, and sends what these methods return.

    rank_died, refuse            begin_epoch                 begin
    ------------------> no epoch ------------> epoch is open ------> plans can be sent
                                 Reset         waits for Capacity    (is_alive)

After a death or a refusal that a device may have caused, the first plans are those of the canary (`canary.py`).

Three numbers differ. An *incarnation* is one run of one process. An *epoch* is the time from one Reset to the loss of the
gang's slots and of the steps in flight. A *memory generation* is the time in which the contents of the KV memory are kept
(`gang_memory.py`).
"""

from __future__ import annotations

from actors.pages.forgetting import Forgetting
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.seal_table import NO_SEALS, SealTables
from actors.scheduler.admission import usable_capacity
from actors.scheduler.gang.canary import DeviceTrial
from actors.scheduler.gang.gang_memory import GangMemory
from actors.scheduler.gang.kept_positions import first_lost_positions, n_kept
from actors.scheduler.gang.plan_hold import PlanHold
from actors.scheduler.gang.probation import ForcedEnding, Probation, is_evidence
from actors.scheduler.gang.step_measures import StepMeasures
from actors.scheduler.planning.batch_planner import BatchPlanner
from actors.scheduler.planning.drafts import ReceivedDrafts
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.look_ahead import LookAhead
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.planning.rows.advance import Advances
from actors.scheduler.planning.rows.row import RowEnd
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.planning.step_tracker import StepTracker
from actors.scheduler.planning.urgent.urgent_planner import UrgentPlanner
from actors.scheduler.sequences.permission import MayRun
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from messages.generation.replica_state import ReplicaCondition
from messages.generation.sequences import Suspicion
from messages.lifecycle.lifecycle import Cause, leaves_memory_intact
from messages.steps import PAGE_TOKENS, Capacity, EngineCapacity, Reset, Result, StepFailed


class GangView:
    """The state of the gang and its epochs. While the gang is not alive, nothing is computed."""

    def __init__(self, queues: SequenceQueues, settings: SchedulerSettings, seals: SealTables = NO_SEALS) -> None:
        self._queues, self._settings = queues, settings
        self.cost = StepCost()  # of this gang and those before it, which ran on the same device
        self.tracker, self.probation = StepTracker(settings.grammar_drafts), Probation(queues.policy)
        self.tier = HostTier(queues, settings, self.cost, seals, is_paused=lambda: self.probation.is_active)
        self._memory = GangMemory(settings, seals.pages, self.tier)
        self.prepare_memory = self._memory.prepare
        self.capacity: EngineCapacity | None = None  # as the last gang has reported it
        self.n_adopted = 0  # pages with known content at the beginning of an epoch, in all epochs
        self.n_tail_tokens = 0  # in partly filled pages that sequences kept at the beginning of an epoch, in all epochs
        self._planner: BatchPlanner | None = None
        self._urgent: UrgentPlanner | None = None
        self._look_ahead = LookAhead(settings.most_in_flight, lease_s=0.0)
        self.hold = PlanHold(queues.policy, queues.now_s, self.cost, self.tracker)
        self._times = StepTimes()  # of all gangs: the next one is of the same kind
        self._measures = StepMeasures(self.tracker, self.hold, self.cost, self._times)
        self._lost_rows, self._causes = list[RowEnd](), list[Cause]()  # in flight when the first died; of all, in order
        self._trial, self._is_dirty = DeviceTrial(), False
        self._died_in_trial = False  # the first rank died while the canary was being computed
        self.n_changes = 0  # of `condition`, or of the suspects; grows when gateways need to know

    @property
    def ledger(self) -> ForgettingLedger | None:
        """The pages of the last memory generation; None if their contents are lost."""
        return self._memory.ledger

    @property
    def is_alive(self) -> bool:
        """True while plans can be sent."""
        return self._planner is not None

    @property
    def condition(self) -> ReplicaCondition:
        """Whether the gang can compute, for the gateways."""
        if self.is_alive and not self._trial.is_running:
            return ReplicaCondition.UP
        return ReplicaCondition.SICK if self._trial.has_failed else ReplicaCondition.DOWN

    @property
    def awaited(self) -> tuple[int, int] | None:
        """What the scheduler waits for: (epoch, number of results so far); the number is -1 while it waits for Capacity."""
        tracker = self.tracker
        if tracker.plans_in_flight:
            return tracker.epoch, tracker.n_done
        return (tracker.epoch, -1) if tracker.is_current(tracker.epoch) and not self.is_alive else None

    # -- epochs -----------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> Reset:
        """Begin an epoch, once all ranks are ready. Returns the Reset to send to them."""
        known, is_suspect = self._memory.known_generation, self._memory.is_suspect
        return Reset(epoch=self.tracker.begin_epoch(), memory_generation=known, is_memory_suspect=is_suspect)

    def begin(self, answer: Capacity) -> EngineCapacity:
        """The ranks have reset. Keeps the ledger if it describes their memory, else adopts the pages that an earlier scheduler
        has recorded for this memory. Returns the usable capacity."""
        capacity = self.capacity = usable_capacity(answer.engine, self._settings.step_tokens)
        is_kept = self._memory.keeps(answer.memory_generation, capacity.n_pages)
        self._keep_slots(capacity.n_slots if is_kept and not self._trial.is_needed else 0)
        ledger = self._memory.begin(answer.memory_generation, capacity.n_pages, capacity.n_least_pages)
        self.n_adopted += ledger.n_known
        pace = PromptPace(self.cost, capacity.max_step_tokens, self._settings)
        self._times.warmed_up(capacity.step_times)
        self.tier.begin_epoch(answer.epoch, ledger, capacity, answer.memory_generation)
        planner = BatchPlanner(self._queues, ledger, capacity, pace, self._settings, self._times, self.tier)
        at = (self._queues, ledger, capacity, self._settings, self._times, self.tracker)
        self._planner, self._urgent = planner, UrgentPlanner(*at, planner.seal_known)
        self._look_ahead = LookAhead(self._settings.most_in_flight, capacity.lease_s)
        self._queues.set_slots(capacity.n_slots)
        self._trial.begin(ledger, capacity, self._settings, self._times)
        self.n_changes += 1
        return capacity

    def rank_died(self, cause: Cause, is_last: bool) -> list[ForcedEnding]:
        """A rank is dead or ends, and the gang with it. Returns the sequences that must end, once that is so for the last rank:
        one death causes others, with errors of their own, and those may be reported first."""
        if self.is_alive:
            self._lost_rows, self._causes = self.tracker.in_flight(), []
            self._died_in_trial = self._trial.is_running
        self._end_epoch()
        self._causes.append(cause)
        self.note_proof(cause)
        # gateways move sequences off at a change, and suspects must not move before their suspicion is known
        self.n_changes += is_last or not is_evidence(self._causes)
        if not is_last or not is_evidence(self._causes):
            return []
        computed, self._lost_rows = self._lost_rows, []
        self._trial.is_needed = True
        if self._died_in_trial:
            self._fall_sick()
            return []
        return self.probation.gang_died(computed)

    def note_proof(self, cause: Cause) -> None:
        """Note the proven cause of a rank's death, in place of earlier reports. Memory that it may have damaged is dropped."""
        if not leaves_memory_intact(cause):
            self._memory.is_suspect = True
            self._drop_memory()

    def refuse(self, failed: StepFailed) -> list[ForcedEnding]:
        """The gang has refused a plan as a whole; a new epoch must begin. Returns the sequences that must end.

        `failed` names suspects by their slots in that plan; other sequences may be in these slots now. The ledger is not kept:
        the plan may have been wrong because the ledger is.
        """
        if self._trial.is_running:
            self._end_epoch()
            self._drop_memory()
            self._fall_sick()
            return []
        rows, named = self.tracker.rows_of(failed)
        self._trial.is_needed |= not named  # the device may be at fault, as after a death
        endings = self.probation.plan_refused(named or rows, failed.reason[:1000], are_named=bool(named))
        self._end_epoch()
        self._drop_memory()
        self.n_changes += 1
        return endings

    def requests_of(self, failed: StepFailed) -> list[str]:
        """The ids of the requests that the refusal of a plan names; those of the whole plan if it names none."""
        rows, named = self.tracker.rows_of(failed)
        return list(dict.fromkeys(row.sequence.request for row, _ in named or rows))

    def abandon_epoch(self) -> None:
        """Plans or answers of this epoch are lost; a new one must begin. The ledger is not kept, as after a refused plan."""
        self._end_epoch()
        self._drop_memory()
        self.n_changes += 1

    def _keep_slots(self, n_slots: int) -> None:
        """Running sequences stay in slots [0, n_slots), with what they have computed; others wait and are computed again."""
        for sequence in list(self._queues.running):
            if sequence.slot >= n_slots:
                self._memory.release(self._queues.preempt(sequence))
        self.n_tail_tokens += sum(sequence.planned % PAGE_TOKENS for sequence in self._queues.running)

    def _drop_memory(self) -> None:
        """The memory has lost its content: all sequences wait and are computed again."""
        self._keep_slots(0)
        self._memory.drop()

    def _end_epoch(self) -> None:
        """The steps in flight are lost. The ledger and the running sequences keep what the applied steps have computed, until
        the next gang says whether it has the same memory."""
        first_lost = first_lost_positions(self.tracker.in_flight())
        self.tracker.end_epoch()
        self._trial.interrupt()
        lost_pages = self._memory.drop_unapplied()
        for sequence in self._queues.running:
            kept = n_kept(sequence, first_lost.get(sequence.number), lost_pages)
            self._memory.release(sequence.interrupt(kept, lost_pages))
        self._planner = None

    def _fall_sick(self) -> None:
        """The gang has not computed the canary: the device is at fault, and no sequence."""
        self._trial.has_failed = True
        self.probation.clear_all()
        self.n_changes += 1

    # -- steps -----------------------------------------------------------------------------------------------------

    def plan(self, has_credit: MayRun, drafts: ReceivedDrafts | None) -> PlannedStep | None:
        """The next step, which counts as sent; None when there is nothing to compute, or enough is in flight."""
        tracker, planner, urgent = self.tracker, self._planner, self._urgent
        if planner is None or urgent is None or self.capacity is None:
            return None
        if len(self._queues.waiting):
            self.tier.settle()
        if self._trial.is_running:
            planned = self._trial.plan(tracker.epoch, tracker.next_step) if not tracker.plans_in_flight else None
        elif self.probation.is_active:
            planned = self._plan_apart(planner, has_credit, drafts) if not tracker.plans_in_flight else None
        elif (planned := urgent.plan(has_credit)) is not None:
            pass
        elif self._look_ahead.is_enough(*tracker.ordinary, self._queues.has_slot, drafts is not None) or self.hold.is_on():
            return None
        else:
            is_drafting = drafts is not None and drafts.likely.has_any(self._queues.running)
            most_steps = self._look_ahead.lease_steps(self.capacity.max_lease_steps, is_drafting)
            planned = planner.plan(tracker.epoch, tracker.next_step, has_credit, drafts, most_steps)
        if planned is not None:
            tracker.sent(planned)
            self._memory.plan_sent(planned.plan.step)
            self._is_dirty = True
            urgent.sent(planned)
        return planned

    def _plan_apart(self, planner: BatchPlanner, has_credit: MayRun, drafts: ReceivedDrafts | None) -> PlannedStep | None:
        """The next step while a sequence is on probation: that sequence alone, or all others if its gateway has no credit."""
        at = (self.tracker.epoch, self.tracker.next_step)
        alone = self.probation.next_alone(has_credit)
        if alone is None:
            return planner.plan(*at, lambda s: has_credit(s) and not self.probation.is_on_probation(s), drafts)
        planned = planner.plan(*at, lambda s: s is alone, drafts)
        if planned is None:  # the waiting sequences hold the pages that it needs
            for sequence in [s for s in self._queues.running if s is not alone]:
                self._memory.release(self._queues.preempt(sequence))
            planned = planner.plan(*at, lambda s: s is alone, drafts)
        return planned

    def apply(self, result: Result) -> Advances:
        """One step is done. Returns the new tokens. Raises: ValueError when another step was expected."""
        number = int(result.step)
        computed = self.tracker.of_step(number) if self.probation.has_suspects else []
        self._measures.step_done(result, self._look_ahead)
        planned, n_plans = self.tracker.plan_of(number), self.tracker.plans_in_flight
        advances = self.tracker.apply(result)
        if planned is not None and self.tracker.plans_in_flight < n_plans:
            self._memory.plan_ended(planned.plan.step)
        if self._trial.is_running:
            self.n_changes += self._trial.step_done()
            return Advances(None, [])
        self._memory.note_open(advances)
        if computed:
            self.probation.computed(computed)
        return advances

    # -- sequences and pages -----------------------------------------------------------------------------------------

    def arrived(self, sequence: Sequence, suspicion: Suspicion | None) -> None:
        """A sequence has come, which may have been suspect elsewhere. While plans must wait there is time to hash its pages."""
        self._queues.add(sequence)
        self._memory.note_caller(sequence)
        if suspicion is not None:
            self.probation.arrived(sequence, suspicion)
        if not self.is_alive and self._settings.prefix_reuse:
            list(sequence.page_contents(sequence.known // PAGE_TOKENS))  # their hashes are remembered

    def release(self, sequence: Sequence) -> None:
        """A sequence has ended: remove it, seal its full pages and give them back."""
        if sequence.state is State.RUNNING and self._planner is not None:
            self._planner.seal_known(sequence, is_planned=False)
        self._memory.release(self._queues.finish(sequence))
        self.probation.clear(sequence)

    def forget(self, wanted: Forgetting) -> int | None:
        """As `GangMemory.forget`; nothing is left without a vault when a gang or its scheduler begins."""
        n_pages = self._memory.forget(wanted)
        return n_pages if self._settings.vault else n_pages or 0

    def audit(self) -> None:
        """Compare the ledger with all holders of pages, once after each period of work, when no plan is in flight. Raises:
        AssertionError naming the first page that is wrong."""
        if self._is_dirty and self.ledger is not None and not self.tracker.plans_in_flight:
            sequences = [*self._queues.running, *self._queues.waiting]
            self.ledger.audit([self._trial.pages, *self.tier.held, *(sequence.pages for sequence in sequences)])
            self._is_dirty = False
