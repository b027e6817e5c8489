"""Which pages a plan may read or write."""

from __future__ import annotations

import numpy as np

from gpu_workers.batch.slot_table import SlotTable
from messages.steps import PAGE_TOKENS, Plan


def pages_of(plan: Plan, slots: SlotTable) -> np.ndarray:
    """The pages of all its rows, from the first position to the last one that it writes, those that slots get by it, and those
    of its copies: int32 [n]. slots: the table after the plan was applied."""
    found = [plan.page_ids]
    if plan.copies is not None:
        found += [plan.copies.sources, plan.copies.targets]
    if len(plan.row_slots):
        ends = plan.row_starts.astype(np.int64) + plan.row_counts + (plan.n_steps - 1)
        n_pages = -(-int(ends.max()) // PAGE_TOKENS)
        is_held = np.arange(n_pages) < slots.n_pages_held[plan.row_slots, None]
        found.append(slots.page_table[plan.row_slots, :n_pages][is_held])
    return np.concatenate(found)
