"""Which rows of a step give log probabilities of their prompts, and at which flat tokens. Pure numpy; both engines use it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_workers.batch.step_arrays import StepArrays
from messages.steps import NewSequence, Plan


@dataclass(frozen=True)
class PromptRows:
    """Q rows of a step, P positions in all. The token after each of these positions belongs to a prompt."""

    slots: list[int]  # [Q]
    firsts: list[int]  # [Q]: the first position of the row
    counts: list[int]  # [Q]: positions of the row that count
    widths: list[int]  # [Q]: most probable tokens that are wanted
    index: np.ndarray  # [P] int64: flat tokens of the step
    token_slots: np.ndarray  # [P] int64
    next_positions: np.ndarray  # [P] int64: of the tokens whose log probabilities are wanted


class PromptTable:
    """The slots whose sequences want log probabilities of their prompts."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[int, int]] = {}  # by slot: positions that count, and the number of top tokens

    def enter(self, new: NewSequence) -> None:
        """A sequence enters its slot."""
        if new.prompt_logprobs >= 0:
            self._wanted[new.slot] = (new.n_prompt - 1, new.prompt_logprobs)
        else:
            self._wanted.pop(new.slot, None)

    def has_any(self, plan: Plan) -> bool:
        """True if a row of the plan gives log probabilities of its prompt."""
        if not self._wanted:
            return False
        return any(
            start < self._wanted.get(slot, (0, 0))[0]
            for slot, start in zip(plan.row_slots.tolist(), plan.row_starts.tolist(), strict=True)
        )

    def rows_of(self, step: StepArrays) -> PromptRows | None:
        """The rows of a step that give log probabilities of their prompts; None if there are none."""
        if not self._wanted:
            return None
        rows = [
            (row, slot, start, min(start + count, self._wanted[slot][0]) - start, self._wanted[slot][1])
            for row, (slot, start, count) in enumerate(
                zip(step.slots.tolist(), step.starts.tolist(), step.counts.tolist(), strict=True)
            )
            if slot in self._wanted and start < self._wanted[slot][0]
        ]
        if not rows:
            return None
        index = np.concatenate([step.offsets[row] + np.arange(count) for row, _, _, count, _ in rows])
        _, slots, firsts, counts, widths = (list(column) for column in zip(*rows, strict=True))
        return PromptRows(slots, firsts, counts, widths, index, step.token_slots[index], step.positions[index] + 1)
