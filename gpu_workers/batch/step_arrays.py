"""One step of a plan as flat arrays: which token of which slot at which position, where its key goes, after which to sample.

Pure numpy: both engines build their step from it. Rows of one token ("decode rows") come first, the rest keeps its order;
samples stand in the plan's order, so results need no mapping back.
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
    n_pages_wide: int  # page-table columns that the longest row needs
    token_slots: np.ndarray  # [T] int64
    positions: np.ndarray  # [T] int64
    kv_slots: np.ndarray  # [T] int64: page id * PAGE_TOKENS + offset in the page
    sample_index: np.ndarray  # [S] int64: flat tokens
    sample_slots: np.ndarray  # [S] int64
    sample_positions: np.ndarray  # [S] int64: position of the token that is sampled
    result_slots: np.ndarray  # [N] int32: in the plan's order
    result_widths: np.ndarray  # [N] int64: samples of the row: drafts + 1

    @property
    def has_drafts(self) -> bool:
        """Is any row to be verified?"""
        return len(self.sample_index) != len(self.result_slots)


def build_step(plan: Plan, page_table: np.ndarray, step_index: int = 0) -> StepArrays:
    """The arrays of step `step_index` of an admitted plan. `page_table`: [slots, pages] int32, with the plan's pages in it."""
    counts = plan.row_counts.astype(np.int64)
    is_long = counts != 1
    n_long = int(np.count_nonzero(is_long))
    order = np.argsort(is_long, kind="stable") if n_long else np.arange(len(counts))
    slots, counts = plan.row_slots.astype(np.int64)[order], counts[order]
    starts = plan.row_starts.astype(np.int64)[order] + step_index
    offsets = np.cumsum(counts) - counts
    if n_long:
        token_slots = np.repeat(slots, counts)
        positions = np.repeat(starts - offsets, counts) + np.arange(len(token_slots))
    else:
        token_slots, positions = slots, starts
    kv_slots = page_table[token_slots, positions // PAGE_TOKENS].astype(np.int64) * PAGE_TOKENS + positions % PAGE_TOKENS
    last = int((starts + counts).max(initial=1)) - 1
    rank_of_row = np.empty_like(order)
    rank_of_row[order] = np.arange(len(order))
    sampling = rank_of_row[plan.row_samples == 1]  # rows that sample, in the plan's order
    widths = np.ones(len(sampling), np.int64)
    if len(plan.draft_counts):
        widths += plan.draft_counts[plan.row_samples == 1]
    row_of_sample = np.repeat(sampling, widths)
    behind = np.repeat(np.cumsum(widths), widths) - np.arange(len(row_of_sample))  # samples left in the row, this one too
    ends = offsets + counts
    sample_index = ends[row_of_sample] - behind
    return StepArrays(
        slots=slots,
        starts=starts,
        counts=counts,
        offsets=offsets,
        n_decode=len(counts) - n_long,
        n_pages_wide=last // PAGE_TOKENS + 1,
        token_slots=token_slots,
        positions=positions,
        kv_slots=kv_slots,
        sample_index=sample_index,
        sample_slots=slots[row_of_sample],
        sample_positions=positions[sample_index] + 1,
        result_slots=slots[sampling].astype(np.int32),
        result_widths=widths,
    )


def draft_places(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(slots, positions) of the plan's draft tokens, each [len(draft_ids)] int64, in their order."""
    counts = plan.draft_counts.astype(np.int64)
    first = np.repeat(plan.row_starts.astype(np.int64) + 1 - (np.cumsum(counts) - counts), counts)
    return np.repeat(plan.row_slots.astype(np.int64), counts), first + np.arange(len(plan.draft_ids))
