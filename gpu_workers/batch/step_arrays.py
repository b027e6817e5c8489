"""One step of a plan as flat arrays: slot, position and slot mapping of each token, and the tokens after which to sample.

Pure numpy; both engines build their steps from it. Rows of one token ("decode rows") come first, the other rows keep their
order. Samples stand in the plan's order, so results need no reordering.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from messages.steps import PAGE_TOKENS, Plan


@dataclass(frozen=True)
class StepArrays:
    """T tokens in R rows, S samples for N sampling rows. All arrays are on the host."""

    slots: np.ndarray  # [R] int64
    starts: np.ndarray  # [R] int64: position of the row's first token
    counts: np.ndarray  # [R] int64
    offsets: np.ndarray  # [R] int64: index of the row's first token in the flat batch
    n_decode: int
    n_pages_wide: int  # columns of the page table that the longest row needs
    token_slots: np.ndarray  # [T] int64
    positions: np.ndarray  # [T] int64
    slot_mapping: np.ndarray  # [T] int64: page id * PAGE_TOKENS + offset in the page
    sample_index: np.ndarray  # [S] int64: flat tokens
    sample_slots: np.ndarray  # [S] int64
    sample_positions: np.ndarray  # [S] int64: position of the token that is sampled
    result_slots: np.ndarray  # [N] int32: in the plan's order
    result_widths: np.ndarray  # [N] int64: samples of the row: drafts + 1

    @property
    def has_drafts(self) -> bool:
        """True if any row has drafts to verify."""
        return len(self.sample_index) != len(self.result_slots)


def build_step(plan: Plan, page_table: np.ndarray, step_index: int = 0) -> StepArrays:
    """The arrays of step `step_index` of an admitted plan. page_table: [slots, pages] int32, the plan's pages included."""
    counts = plan.row_counts.astype(np.int64)
    is_long = counts != 1
    n_long = int(np.count_nonzero(is_long))
    order = np.argsort(is_long, kind="stable") if n_long else np.arange(len(counts))
    slots, counts = plan.row_slots.astype(np.int64)[order], counts[order]
    starts = plan.row_starts.astype(np.int64)[order] + step_index
    ends = np.cumsum(counts)
    offsets = ends - counts
    if n_long:
        token_slots = np.repeat(slots, counts)
        positions = np.repeat(starts - offsets, counts) + np.arange(len(token_slots))
    else:
        token_slots, positions = slots, starts
    pages = page_table[token_slots, positions // PAGE_TOKENS].astype(np.int64)
    last_position = int((starts + counts).max(initial=1)) - 1
    sampling_rows, widths, row_of_sample, sample_index = _samples(plan, order, ends)
    return StepArrays(
        slots=slots,
        starts=starts,
        counts=counts,
        offsets=offsets,
        n_decode=len(counts) - n_long,
        n_pages_wide=last_position // PAGE_TOKENS + 1,
        token_slots=token_slots,
        positions=positions,
        slot_mapping=pages * PAGE_TOKENS + positions % PAGE_TOKENS,
        sample_index=sample_index,
        sample_slots=slots[row_of_sample],
        sample_positions=positions[sample_index] + 1,
        result_slots=slots[sampling_rows].astype(np.int32),
        result_widths=widths,
    )


def _samples(plan: Plan, order: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(sampling rows [N], samples of each [N], row of each sample [S], flat token of each sample [S]), all int64.

    Rows are numbered as in the step: row i is row order[i] of the plan and ends before flat token ends[i]. Results stand in the
    plan's order. A row with k drafts samples after each of its last k + 1 tokens, any other row after its last token.
    """
    row_in_step = np.empty_like(order)
    row_in_step[order] = np.arange(len(order))
    is_sampling = plan.row_samples == 1
    sampling_rows = row_in_step[is_sampling]
    widths = np.ones(len(sampling_rows), np.int64)
    if len(plan.draft_counts):
        widths += plan.draft_counts[is_sampling]
    row_of_sample = np.repeat(sampling_rows, widths)
    n_to_end = np.repeat(np.cumsum(widths), widths) - np.arange(len(row_of_sample))  # samples to the row's end, this one too
    return sampling_rows, widths, row_of_sample, ends[row_of_sample] - n_to_end


def draft_places(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(slots, positions) of the plan's draft tokens, each [len(draft_ids)] int64, in their order."""
    counts = plan.draft_counts.astype(np.int64)
    first = np.repeat(plan.row_starts.astype(np.int64) + 1 - (np.cumsum(counts) - counts), counts)
    return np.repeat(plan.row_slots.astype(np.int64), counts), first + np.arange(len(plan.draft_ids))
