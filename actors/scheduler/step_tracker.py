"""Which steps are on their way to which life of the gang, and what a result means for its sequences. The only place that
knows step numbers. Pure."""

from __future__ import annotations

from collections import deque

import msgspec

from actors.scheduler.batch_planner import PlannedStep, Row
from messages.outcomes import EndReason
from messages.steps import Result


class Advance(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one sequence: the ids that count, and why it ended with them (None: it goes on)."""

    row: Row
    first: int  # index of ids[0] among the generated tokens
    ids: list[int]
    offset: int  # of ids[0] in the result's arrays
    ending: EndReason | None


class _Step(msgspec.Struct, frozen=True, gc=False):
    """One step on its way: the `index`-th of its plan."""

    planned: PlannedStep
    index: int

    @property
    def number(self) -> int:
        return self.planned.plan.step + self.index

    @property
    def is_last(self) -> bool:
        return self.index == self.planned.plan.n_steps - 1

    def reaches(self) -> list[tuple[Row, int]]:
        """Its rows, and the positions that each would have completed."""
        return [(row, row.start + row.count + self.index) for row in self.planned.rows]


class StepTracker:
    """Steps in flight, oldest first."""

    def __init__(self) -> None:
        self.epoch = 0
        self.next_step = 1
        self.n_done = 0
        self._steps: deque[_Step] = deque()
        self.plans_in_flight = 0

    def begin_epoch(self) -> int:
        """Forget everything on its way: the gang starts empty. Returns the new epoch."""
        self.epoch += 1
        self._steps.clear()
        self.plans_in_flight = 0
        return self.epoch

    def sent(self, planned: PlannedStep) -> None:
        """A plan left."""
        n_steps = planned.plan.n_steps
        for index in range(n_steps):
            self._steps.append(_Step(planned, index))
        self.next_step += n_steps
        self.plans_in_flight += 1

    @property
    def steps_in_flight(self) -> int:
        """Steps whose result has not come."""
        return len(self._steps)

    def in_flight(self) -> list[tuple[Row, int]]:
        """Every row on its way, oldest first, and the positions that it would have completed."""
        return [reach for step in self._steps for reach in step.reaches()]

    def oldest(self) -> list[tuple[Row, int]]:
        """The rows of the step whose result comes next."""
        return self._steps[0].reaches() if self._steps else []

    def of_step(self, number: int) -> list[tuple[Row, int]]:
        """The rows of one step on its way."""
        return [reach for step in self._steps if step.number == number for reach in step.reaches()]

    def apply(self, result: Result) -> list[Advance]:
        """Move the sequences of one step on. A stale result gives nothing.

        Raises: ValueError when the gang answers another step than the oldest in flight, or other rows than planned.
        """
        if result.epoch != self.epoch:
            return []
        if not self._steps or self._steps[0].number != result.step:
            raise ValueError(f"step: expected {self._steps[0].number if self._steps else None}, got {result.step}")
        step = self._steps.popleft()
        rows = step.planned.sampling
        self.plans_in_flight -= step.is_last
        self.n_done += 1
        if len(result.slots) != len(rows) or len(result.counts) != len(rows):
            raise ValueError(f"slots: expected {len(rows)} rows, got {len(result.slots)}")
        advances, offset, ids = [], 0, result.ids.tolist()
        for row, count in zip(rows, result.counts.tolist(), strict=True):
            if row.sequence.stay == row.stay:  # it still runs, as it did when this was planned
                advances.append(_advance(row, ids[offset : offset + count], offset))
            offset += count
        return advances


def _advance(row: Row, ids: list[int], offset: int) -> Advance:
    """Append what a row gave, cut at the first stop token or at the length limit."""
    sequence = row.sequence
    if row.drafts:
        sequence.is_verifying = False
        sequence.planned = row.start + len(ids)  # the accepted tokens' keys and values are in place; the last id's are not
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
