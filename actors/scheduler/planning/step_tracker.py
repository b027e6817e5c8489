"""The steps in flight of the present epoch, and the changes that a result makes to its sequences. Owns the numbers of epochs
and steps. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from actors.scheduler.planning.plan_builder import PlannedStep, Row, RowEnd
from actors.scheduler.sequences.sequence import Sequence
from messages.generation.logprobs import PromptLogprobs
from messages.outcomes import EndReason
from messages.steps import GrammarReport, Result, StepFailed


class Advance(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one sequence: the ids that count, and why the sequence has ended with them (None: it goes on)."""

    row: Row
    first: int  # index of ids[0] among the generated tokens
    ids: list[int]
    offset: int  # of ids[0] in the result's arrays
    ending: EndReason | None
    detail: str = ""  # of the ending "failed": why its grammar cannot be followed any further
    rest_s: float = 0.0  # its grammar is slow: it is not planned for so long

    @property
    def n_accepted(self) -> int:
        """Draft tokens of the row that were accepted."""
        return len(self.ids) - 1 if self.row.drafts else 0

    @property
    def is_first_of_plan(self) -> bool:
        """True if this is the first result of the row's plan, which may have granted several steps of one token each."""
        return self.row.sequence.known <= self.row.start + self.row.count + 1


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

    def apply(self, result: Result) -> list[Advance]:
        """Add the new tokens of one step to its sequences; returns them. Returns [] for a stale result.

        Raises: ValueError when the result is neither of the oldest step in flight nor of the urgent one, or has other rows than
        planned.
        """
        if not self.is_current(result.epoch):
            return []
        step = self._take(int(result.step))
        rows = step.planned.sampling
        if len(result.slots) != len(rows) or len(result.counts) != len(rows):
            raise ValueError(f"slots: expected {len(rows)} rows, got {len(result.slots)}")
        if result.prompts:
            self._new_prompts += _new_prompts(step.planned, result)
        ids, counts = result.ids.tolist(), result.counts.tolist()
        if result.grammars is None and not len(step.planned.plan.draft_counts) and counts.count(1) == len(rows) == len(ids):
            return _advance_plain(rows, ids)
        advances, offset = [], 0
        advance = _advance if result.grammars is None else _advance_by(result.grammars)
        for row, count in zip(rows, counts, strict=True):
            if row.sequence.stay == row.stay:  # it has not left its slot since it was planned
                advances.append(advance(row, ids[offset : offset + count], offset))
            offset += count
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


def _advance_plain(rows: list[Row], ids: list[int]) -> list[Advance]:
    """As `_advance` for each row that has not left its slot, where none has drafts and each has one token: most results are so,
    and take half of the time."""
    advances = []
    for offset, (row, token) in enumerate(zip(rows, ids, strict=True)):
        s = row.sequence
        if s.stay != row.stay:
            continue
        first = s.known - s.n_prompt
        if first >= s.max_tokens:
            advances.append(_advance(row, [token], offset))
            continue
        s.in_flight -= 1
        s.append((token,))
        ending: EndReason | None = None
        if token in s.stop_tokens:
            ending = "stop"
        elif first + 1 == s.max_tokens:
            ending = "length"
        advances.append(Advance(row, first, [token], offset, ending))
    return advances


def _advance(row: Row, ids: list[int], offset: int) -> Advance:
    """Append the new tokens of a row up to the first stop token or the length limit."""
    sequence = row.sequence
    if row.drafts:
        sequence.is_verifying = False
        sequence.planned = row.start + len(ids)  # the last id has no keys and values yet
    else:
        sequence.in_flight -= 1
    first = sequence.known - sequence.n_prompt
    ending: EndReason | None = None
    if first + len(ids) > sequence.max_tokens:
        ids = ids[: sequence.max_tokens - first]
    if not sequence.stop_tokens.isdisjoint(ids):
        at = next(index for index, token in enumerate(ids) if token in sequence.stop_tokens)
        ids, ending = ids[: at + 1], "stop"
    sequence.append(ids)
    if ending is None and first + len(ids) >= sequence.max_tokens:
        ending = "length"
    return Advance(row, first, ids, offset, ending)


def _advance_by(report: GrammarReport) -> Callable[[Row, list[int], int], Advance]:
    """As `_advance`, but tokens of an answer whose grammar cannot be followed any further do not count, and it fails."""
    failed = {failure.slot: failure.reason for failure in report.failures}
    rests = {rest.slot: rest.wait_s for rest in report.rests}

    def advance_one(row: Row, ids: list[int], offset: int) -> Advance:
        if row.slot in failed:
            return Advance(row, row.sequence.n_generated, [], offset, "failed", failed[row.slot])
        advance = _advance(row, ids, offset)
        return msgspec.structs.replace(advance, rest_s=rests[row.slot]) if row.slot in rests else advance

    return advance_one


def _note_forced(sequences: dict[int, Sequence], report: GrammarReport) -> None:
    """Keep the tokens that the grammars of these sequences, by slot, allow alone."""
    offset, ids = 0, report.ids.tolist()
    for slot, start, count in zip(report.slots.tolist(), report.starts.tolist(), report.counts.tolist(), strict=True):
        if slot in sequences:
            sequences[slot].force(start, ids[offset : offset + count])
        offset += count
