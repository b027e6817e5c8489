"""The steps in flight of the present epoch, and the changes that a result makes to its sequences. Owns the numbers of epochs
and steps. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.rows.advance import Advance, Advances, advance_batch, advance_by, advance_plain, advance_row
from actors.scheduler.planning.rows.row import Row, RowEnd
from actors.scheduler.sequences.sequence import Sequence
from messages.generation.logprobs import PromptLogprobs
from messages.steps import GrammarReport, Result, StepFailed


class _Step(msgspec.Struct, frozen=True, gc=False):
    """One step in flight: number `index` of its plan, from 0."""

    planned: PlannedStep
    index: int

    @property
    def number(self) -> int:
        return self.planned.plan.step + self.index

    @property
    def is_last(self) -> bool:
        return self.index == self.planned.plan.n_steps - 1

    def row_ends(self) -> list[RowEnd]:
        """The rows of this step, each with the number of its positions that are complete after it."""
        return [(row, row.start + row.count + self.index) for row in self.planned.rows]


class StepTracker:
    """Steps in flight, oldest first, and an urgent one beside them. An epoch is the time from one Reset of the gang to the loss
    of its state."""

    def __init__(self, takes_forced: bool = True) -> None:
        """takes_forced: tokens that a grammar allows alone are kept for the next plan."""
        self._takes_forced = takes_forced
        self.epoch = 0  # of the last Reset
        self._is_open = False  # that epoch has not ended
        self.next_step = 1
        self.n_done = 0
        self.n_ordinary_done = 0  # steps that were not urgent
        self._steps: deque[_Step] = deque()  # those that run in order
        self._urgent: _Step | None = None
        self.ordinary_plans = 0  # plans in flight that run in order
        self._slowed: set[int] = set()  # numbers of steps in flight that an urgent one runs, or ran, beside
        self._delayed: set[int] = set()  # of those that began after an urgent one, and waited for it
        self._new_prompts: list[tuple[Sequence, PromptLogprobs]] = []

    def begin_epoch(self) -> int:
        """Begin the next epoch, with no step in flight. Returns its number."""
        self.end_epoch()
        self.epoch += 1
        self._is_open = True
        return self.epoch

    def end_epoch(self) -> None:
        """Forget the steps in flight; from now on every answer of this epoch is stale."""
        self._steps.clear()
        self._urgent, self.ordinary_plans = None, 0
        self._slowed.clear()
        self._delayed.clear()
        self._is_open = False

    def is_current(self, epoch: int) -> bool:
        """True if an answer with this epoch number is current; else it is stale."""
        return self._is_open and epoch == self.epoch

    def sent(self, planned: PlannedStep) -> None:
        """A plan has been sent."""
        n_steps = planned.plan.n_steps
        self.next_step += n_steps
        if planned.plan.is_urgent:
            self._urgent = _Step(planned, 0)
            self._slowed.update(step.number for step in self._steps)
            return
        for index in range(n_steps):
            self._steps.append(_Step(planned, index))
        self.ordinary_plans += 1
        if self._urgent is not None:
            self._delayed.add(planned.plan.step)

    @property
    def has_urgent(self) -> bool:
        """True while an urgent step is in flight."""
        return self._urgent is not None

    @property
    def plans_in_flight(self) -> int:
        """Number of plans of which a result has not come."""
        return self.ordinary_plans + self.has_urgent

    @property
    def ordinary(self) -> tuple[int, int, bool]:
        """How many plans and how many steps are in flight that run in order, and whether any of them computes a prompt."""
        return self.ordinary_plans, len(self._steps), any(step.planned.n_prompts for step in self._steps)

    def planned(self) -> list[PlannedStep]:
        """The plan of each step in flight that runs in order, oldest first."""
        return [step.planned for step in self._steps]

    def plan_of(self, number: int) -> PlannedStep | None:
        """The plan of one step in flight."""
        return next((step.planned for step in self._all() if step.number == number), None)

    def is_slowed(self, number: int) -> bool:
        """True for a step in flight that an urgent one ran beside, or that is urgent: its time is not that of its work."""
        return number in self._slowed or self.is_urgent(number)

    def is_delayed(self, number: int) -> bool:
        """True for a step in flight that waited for an urgent one, or is slowed: its end says nothing about the host."""
        return number in self._delayed or self.is_slowed(number)

    def is_urgent(self, number: int) -> bool:
        """True for the urgent step in flight."""
        return self._urgent is not None and self._urgent.number == number

    def in_flight(self) -> list[RowEnd]:
        """Every row in flight, oldest first."""
        return [row_end for step in self._all() for row_end in step.row_ends()]

    def of_step(self, number: int) -> list[RowEnd]:
        """The rows of one step in flight."""
        return [row_end for step in self._all() if step.number == number for row_end in step.row_ends()]

    def rows_of(self, failed: StepFailed) -> tuple[list[RowEnd], list[RowEnd]]:
        """The rows of a refused plan, and those of them that the refusal names."""
        rows = self.of_step(int(failed.step)) or self.in_flight()
        slots = set(failed.suspects.tolist())
        return rows, [(row, stop) for row, stop in rows if row.slot in slots]

    def _all(self) -> Iterable[_Step]:
        """All steps in flight, in the order of their numbers."""
        urgent = self._urgent
        return self._steps if urgent is None else sorted((*self._steps, urgent), key=lambda step: step.number)

    def apply(self, result: Result) -> Advances:
        """Add the new tokens of one step to its sequences; returns them: none for a stale result.

        Raises: ValueError when the result is neither of the oldest step in flight nor of the urgent one, or has other rows than
        planned.
        """
        if not self.is_current(result.epoch):
            return Advances(None, [])
        step = self._take(int(result.step))
        planned = step.planned
        batch, others = planned.batch, [row for row in planned.others if row.samples]
        n_together = 0 if batch is None else len(batch)
        n_rows = n_together + len(others)
        if len(result.slots) != n_rows or len(result.counts) != n_rows:
            raise ValueError(f"slots: expected {n_rows} rows, got {len(result.slots)}")
        if result.prompts:
            self._new_prompts += _new_prompts(planned, result)
        counts = result.counts.tolist()
        if batch is None:
            return Advances(None, self._advance(planned, others, counts, result, 0))
        if counts[:n_together].count(1) < n_together or len(result.ids) < n_together:
            return Advances(None, self._advance(planned, planned.sampling, counts, result, 0))
        together = advance_batch(batch, step.index, result.ids[:n_together])
        others = self._advance(planned, others, counts[n_together:], result, n_together) if others else []
        return Advances(together, others)

    def _advance(self, planned: PlannedStep, rows: list[Row], counts: list[int], result: Result, offset: int) -> list[Advance]:
        """Add the new tokens of these rows, from this place of the result's arrays on, to their sequences."""
        ids, has_drafts = result.ids[offset:].tolist(), len(planned.plan.draft_counts) > 0
        if result.grammars is None and not has_drafts and counts.count(1) == len(rows) == len(ids):
            return advance_plain(rows, ids, offset)
        advances, at = list[Advance](), 0
        advance = advance_row if result.grammars is None else advance_by(result.grammars)
        for row, count in zip(rows, counts, strict=True):
            if row.sequence.stay == row.stay:  # it has not left its slot since it was planned
                advances.append(advance(row, ids[at : at + count], offset + at))
            at += count
        if result.grammars is not None and self._takes_forced:
            _note_forced({each.row.slot: each.row.sequence for each in advances}, result.grammars)
        return advances

    def _take(self, number: int) -> _Step:
        """The step with this number, which is in flight no more."""
        is_urgent = self._urgent is not None and number >= self._urgent.number  # what was sent after it runs after it
        step = self._urgent if is_urgent else self._steps[0] if self._steps else None
        if step is None or step.number != number:
            raise ValueError(f"step: expected {step.number if step is not None else None}, got {number}")
        if is_urgent:
            self._urgent = None
        else:
            self._steps.popleft()
            self._slowed.discard(number)
            self._delayed.discard(number)
            self.ordinary_plans -= step.is_last
            self.n_ordinary_done += 1
        self.n_done += 1
        return step

    def take_prompts(self) -> list[tuple[Sequence, PromptLogprobs]]:
        """New log probabilities of prompts in the results since the last call, each with its sequence."""
        if not self._new_prompts:
            return []
        new, self._new_prompts = self._new_prompts, []
        return new


def _new_prompts(planned: PlannedStep, result: Result) -> list[tuple[Sequence, PromptLogprobs]]:
    """What is new in the log probabilities of prompts, with the sequences. Raises: ValueError for a slot without a row."""
    rows = {row.slot: row for row in planned.rows}
    news: list[tuple[Sequence, PromptLogprobs]] = []
    for part in result.prompts:
        if (row := rows.get(part.owner)) is None:
            raise ValueError(f"prompts.owner: expected a slot of the plan, got {part.owner}")
        new = row.sequence.new_prompt_logprobs(part) if row.sequence.stay == row.stay else None
        if new is not None:
            news.append((row.sequence, new))
    return news


def _note_forced(sequences: dict[int, Sequence], report: GrammarReport) -> None:
    """Keep the tokens that the grammars of these sequences, by slot, allow alone."""
    offset, ids = 0, report.ids.tolist()
    for slot, start, count in zip(report.slots.tolist(), report.starts.tolist(), report.counts.tolist(), strict=True):
        if slot in sequences:
            sequences[slot].force(start, ids[offset : offset + count])
        offset += count
