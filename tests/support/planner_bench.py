"""A scheduler without an actor: its view of the gang, driven by hand. Results are made up.

The bench keeps the content of each page as if a gang computed it: a plan writes its pages when it is applied, and a lost plan
may leave anything where it would have written. So a row whose pages do not hold the sequence's own prefix is noticed. The page
tables are those of a rank, which checks each plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Values
from typing import Any

import msgspec

from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.drafts import ReceivedDrafts
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.rows.advance import Advance
from actors.scheduler.policies.choice import make_queues
from actors.scheduler.sequences.permission import MayRun, Permission
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.batch.slot_table import SlotTable
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.lifecycle.lifecycle import Cause
from messages.steps import PAGE_TOKENS, Capacity, EngineCapacity, Result
from messages.wire.arrays import int32s
from tests.support.scheduler.page_contents import PageContents

VOCABULARY = 1000
_ALL = Permission()


def sequence_of(number: int, tokens: Values[int] = (1, 2, 3), n_prompt: int | None = None, **terms: Any) -> Sequence:
    """A waiting sequence, of gateway/0; `terms` as in `Terms` (without speculation unless they say otherwise)."""
    submit = Submit(
        attempt=number,
        request=f"r{number}",
        tokens=int32s(tokens),
        n_prompt=len(tokens) if n_prompt is None else n_prompt,
        sampling=Sampling(),
        terms=Terms(**({"max_tokens": 5, "speculation": False} | terms)),
    )
    return Sequence("gateway/0", submit, number)


def capacity_of(**fields: Any) -> EngineCapacity:
    """What a small engine holds; `fields` replace the usual ones."""
    usual = {
        "n_pages": 64,
        "n_slots": 4,
        "max_length": 256,
        "max_step_tokens": 64,
        "max_lease_steps": 1,
        "vocabulary": VOCABULARY,
        "device": "none",
        "lease_s": 1.0,
        "copies_pages": True,
    }
    return EngineCapacity(**(usual | fields))


def next_token(sequence: Sequence, position: int) -> int:
    """The token that the made-up model gives at a position of a sequence: never one of the ids below 100."""
    return 100 + (sequence.number * 7919 + position * 104_729) % (VOCABULARY - 100)


class PlannerBench:
    """One view of a gang and the plans in flight. `fields` are of the capacity, `settings` of the scheduler."""

    def __init__(self, settings: dict[str, Any] | None = None, **fields: Any) -> None:
        self.now_s = 0.0
        self.settings = msgspec.convert(settings or {}, SchedulerSettings)
        self.queues = make_queues(self.settings, lambda: self.now_s)
        self.gang = GangView(self.queues, self.settings)
        self.capacity = capacity_of(**fields)
        self.drafts = ReceivedDrafts()
        self.plans: deque[PlannedStep] = deque()  # in flight
        self.ended: list[Sequence] = []
        self._memory = PageContents()
        self._pages_of: deque[dict[int, list[int]]] = deque()  # for each plan in flight: slot -> pages
        self._generation = 1
        self._number = 0
        self.begin(generation=1)

    def begin(self, generation: int) -> None:
        """A new epoch of the gang, on this memory."""
        self._slots = SlotTable(self.capacity)
        reset = self.gang.begin_epoch()
        self.gang.begin(Capacity(epoch=reset.epoch, memory_generation=generation, engine=self.capacity))

    def add(self, tokens: Values[int], max_tokens: int = 5, **terms: Any) -> Sequence:
        """One more waiting sequence."""
        self._number += 1
        sequence = sequence_of(self._number, tokens, max_tokens=max_tokens, **terms)
        self.queues.add(sequence)
        return sequence

    def plan(self, may_run: MayRun = _ALL) -> PlannedStep | None:
        """The next plan, which is in flight then."""
        planned = self.gang.plan(may_run, self.drafts)
        if planned is not None:
            if planned.plan.is_urgent:
                self._check_beside(planned)
            self.plans.append(planned)
            self._slots.apply(planned.plan)
            self._pages_of.append({row.slot: self._slots.page_table[row.slot].tolist() for row in planned.rows})
        return planned

    def _check_beside(self, urgent: PlannedStep) -> None:
        """An urgent plan touches no slot and no page that a plan in flight changes or copies."""
        pages, slots = set[int](), set[int]()
        for planned, pages_of in zip(self.plans, self._pages_of, strict=True):
            slots |= {*planned.plan.row_slots.tolist(), *planned.plan.page_slots.tolist()}
            if (copies := planned.plan.copies) is not None:
                pages |= {*copies.sources.tolist(), *copies.targets.tolist()}
            for row in planned.rows:
                stop = row.start + row.count + planned.plan.n_steps - 1
                pages |= {pages_of[row.slot][position // PAGE_TOKENS] for position in range(row.start, stop)}
        assert not slots & set(urgent.plan.row_slots.tolist())
        assert not pages & set(urgent.plan.page_ids.tolist())
        assert urgent.plan.copies is None

    def apply(self, at: int = 0) -> list[Advance]:
        """The results of all steps of the oldest plan in flight, or of the one at this place; sequences that end are
        released."""
        planned, advances, pages_of = self.plans[at], [], self._pages_of[at]
        del self.plans[at], self._pages_of[at]
        if planned.plan.copies is not None:
            self._memory.copy(planned.plan.copies)
        for row in planned.rows:
            if row.stay == row.sequence.stay:  # an urgent plan may have taken pages that others read in vain
                self._memory.check(row.sequence, pages_of[row.slot], row.start)
        for index in range(planned.plan.n_steps):
            advances += self.gang.apply(self._result(planned, index))
        for row in planned.rows:
            stop = row.start + row.count + planned.plan.n_steps - 1
            self._memory.write(row.sequence, pages_of[row.slot], row.start, stop)
        for advance in advances:
            if advance.ending is not None:
                self.ended.append(advance.row.sequence)
                self.gang.release(advance.row.sequence)
        return advances

    def run(self) -> None:
        """Plan and apply until nothing is left to compute."""
        while self.plan() is not None or self.plans:
            self.apply()

    def die(self, generation: int = 1, cause: Cause = "killed") -> None:
        """The gang dies with all plans in flight; its successor has this memory."""
        self.lose_gang(cause)
        self.succeed(generation)

    def lose_gang(self, cause: Cause = "killed") -> None:
        """The gang dies with all plans in flight. Each of them may have written anything, or nothing."""
        for planned, pages_of in zip(self.plans, self._pages_of, strict=True):
            if planned.plan.copies is not None:
                self._memory.spoil_copies(planned.plan.copies)
            for row in planned.rows:
                self._memory.spoil(pages_of[row.slot], row.start, row.start + row.count + planned.plan.n_steps - 1)
        self.gang.rank_died(cause, is_last=True)
        self.plans.clear()
        self._pages_of.clear()

    def succeed(self, generation: int = 1) -> None:
        """The next gang has this memory. What sequences keep and what the ledger knows must be there."""
        if generation != self._generation:
            self._memory = PageContents()
        self._generation = generation
        self.begin(generation)
        for sequence in self.queues.running:
            self._memory.check(sequence, sequence.pages, sequence.planned)
        assert self.gang.ledger is not None
        self._memory.check_ledger(self.gang.ledger)

    def rows(self, planned: PlannedStep | None) -> list[tuple[int, int, int, bool]]:
        """(sequence, first position, positions, samples?) of each row."""
        return [(row.sequence.number, row.start, row.count, row.samples) for row in planned.rows] if planned else []

    def _result(self, planned: PlannedStep, index: int) -> Result:
        ids, counts = [], []
        for row in planned.sampling:
            given = [next_token(row.sequence, row.start + row.count + index)]
            if row.drafts:
                given = [next_token(row.sequence, row.start + 1 + offset) for offset in range(len(row.drafts) + 1)]
                wrong = [offset for offset, draft in enumerate(row.drafts) if draft != given[offset]]
                given = given[: wrong[0] + 1] if wrong else given
            counts.append(len(given))
            ids += given
        return Result(
            epoch=planned.plan.epoch,
            step=planned.plan.step + index,
            slots=int32s([row.slot for row in planned.sampling]),
            counts=int32s(counts),
            ids=int32s(ids),
            compute_s=0.001,
        )
