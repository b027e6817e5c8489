"""Which steps are on their way to which life of the gang, and what a result means for its sequences. The only place that
knows step numbers. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from actors.scheduler.batch_planner import PlannedStep, Row
from actors.scheduler.sequence import State
from messages.generation import Reason
from messages.steps import Result


@dataclass(frozen=True)
class Advance:
    """New tokens of one sequence: the ids that count, and why it ended with them (None: it goes on)."""

    row: Row
    first: int  # index of ids[0] among the generated tokens
    ids: list[int]
    offset: int  # of ids[0] in the result's arrays
    ending: Reason | None


class StepTracker:
    """Steps in flight, oldest first."""

    def __init__(self) -> None:
        self.epoch = 0
        self.next_step = 1
        self.n_done = 0
        self._steps: deque[tuple[int, list[Row], bool]] = deque()  # (step, sampling rows, last of its plan)
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
            self._steps.append((self.next_step + index, planned.rows, index == n_steps - 1))
        self.next_step += n_steps
        self.plans_in_flight += 1

    def rows_in_flight(self) -> list[Row]:
        """Every sampling row on its way."""
        return [row for _, rows, _ in self._steps for row in rows]

    def apply(self, result: Result) -> list[Advance]:
        """Move the sequences of one step on. A stale result gives nothing.

        Raises: ValueError when the gang answers another step than the oldest in flight, or other rows than planned.
        """
        if result.epoch != self.epoch:
            return []
        if not self._steps or self._steps[0][0] != result.step:
            raise ValueError(f"step: expected {self._steps[0][0] if self._steps else None}, got {result.step}")
        _, rows, is_last = self._steps.popleft()
        self.plans_in_flight -= is_last
        self.n_done += 1
        if len(result.slots) != len(rows) or len(result.counts) != len(rows):
            raise ValueError(f"slots: expected {len(rows)} rows, got {len(result.slots)}")
        advances, offset, ids = [], 0, result.ids.tolist()
        for row, count in zip(rows, result.counts.tolist(), strict=True):
            if row.sequence.life == row.life and row.sequence.state is State.RUNNING:
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
    first = sequence.n_generated
    ending: Reason | None = None
    ids = ids[: sequence.max_tokens - first]
    for index, token in enumerate(ids):
        if token in sequence.stop_tokens:
            ids, ending = ids[: index + 1], "stop"
            break
    sequence.append(ids)
    if ending is None and sequence.n_generated >= sequence.max_tokens:
        ending = "length"
    return Advance(row, first, ids, offset, ending)
