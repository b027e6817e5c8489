"""The slot table refuses every broken plan whole, and step arrays agree with a plain rendering of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.batch.step_arrays import build_step, draft_places
from gpu_workers.engine import PlanRefused
from messages.generation.sampling import Sampling
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence, PageCopies, Plan
from messages.wire.arrays import int32s
from tests.support.depth import examples

CAPACITY = EngineCapacity(
    n_pages=32, n_slots=4, max_length=100, max_step_tokens=64, max_lease_steps=4, vocabulary=50, device="test"
)


def plan(**fields: Any) -> Plan:
    new = fields.pop("new", [])
    arrays = ("new_tokens", "page_slots", "page_indices", "page_ids", "row_slots", "row_starts", "row_counts", "row_samples")
    arrays += ("draft_counts", "draft_ids")
    sequences = [NewSequence(slot=s, n_tokens=n, n_prompt=n, sampling=Sampling()) for s, n in new]
    fields.setdefault("new_tokens", [1] * sum(n for _, n in new))
    steps = fields.pop("n_steps", 1)
    copies = PageCopies(*(int32s(column) for column in fields.pop("copies"))) if "copies" in fields else None
    columns: dict[str, Any] = {name: int32s(fields.pop(name, ())) for name in arrays}
    return Plan(epoch=1, step=0, n_steps=steps, new=sequences, copies=copies, **columns)


def table() -> SlotTable:
    """Slot 0 holds 20 tokens and two pages, slot 1 holds 5 tokens and one page."""
    table = SlotTable(CAPACITY)
    table.apply(plan(new=[(0, 20), (1, 5)], page_slots=[0, 1, 0], page_indices=[0, 0, 1], page_ids=[7, 8, 9]))
    return table


ROW = {"row_slots": [0], "row_starts": [19], "row_counts": [1], "row_samples": [1]}
BROKEN = {
    "slot of new": ({"new": [(4, 1)]}, "new.slot: expected less than 4, got 4"),
    "no tokens": ({"new": [(2, 0)]}, "new.n_tokens: expected 1 to 100, got 0"),
    "too long": ({"new": [(2, 101)]}, "new.n_tokens"),
    "same slot twice": ({"new": [(2, 1), (2, 1)]}, "new: expected distinct slots"),
    "token id": ({"new": [(2, 1)], "new_tokens": [50]}, "new_tokens: expected 0 to 49, got 50"),
    "negative token": ({"new": [(2, 1)], "new_tokens": [-1]}, "new_tokens: expected 0 to 49, got -1"),
    "page id": ({"page_slots": [0], "page_indices": [2], "page_ids": [32]}, "page_ids: expected 0 to 31, got 32"),
    "page index": ({"page_slots": [0], "page_indices": [7], "page_ids": [1]}, "page_indices: expected 0 to 6"),
    "page gap": ({"page_slots": [0], "page_indices": [3], "page_ids": [1]}, "page_indices: expected no gap"),
    "page of a free slot": ({"page_slots": [2], "page_indices": [0], "page_ids": [1]}, "page_indices: expected no gap"),
    "page slot": ({"page_slots": [-1], "page_indices": [0], "page_ids": [1]}, "page_slots"),
    "row slot": ({**ROW, "row_slots": [9]}, "row_slots: expected 0 to 3, got 9"),
    "free slot": ({**ROW, "row_slots": [3]}, "row_slots: expected a sequence in the slot"),
    "slots not distinct": (
        {"row_slots": [0, 0], "row_starts": [0, 1], "row_counts": [1, 1], "row_samples": [0, 0]},
        "row_slots: expected distinct slots",
    ),
    "negative start": ({**ROW, "row_starts": [-1]}, "row_starts: expected 0 or more"),
    "no count": ({**ROW, "row_counts": [0]}, "row_counts: expected 1 or more"),
    "unknown token": ({**ROW, "row_starts": [20]}, "row_counts: expected known tokens only"),
    "no page": ({**ROW, "new": [(0, 40)], "row_starts": [39]}, "page_ids: expected a page for every position"),
    "row sample": ({**ROW, "row_samples": [2]}, "row_samples: expected 0 or 1"),
    "too many tokens": ({**ROW, "row_counts": [65], "row_starts": [0]}, "row_counts: expected at most 64 tokens"),
    "long lease": ({**ROW, "n_steps": 5}, "n_steps: expected at most 4, got 5"),
    "lease of a chunk": ({**ROW, "n_steps": 2, "row_starts": [18], "row_counts": [2]}, "n_steps: expected a lease"),
    "drafts and counts": ({**ROW, "draft_counts": [2], "draft_ids": [1, 1]}, "draft_counts: expected sampling rows"),
    "copied page": ({"copies": ([32], [5], [8])}, "copies.sources: expected 0 to 31, got 32"),
    "page to copy to": ({"copies": ([5], [-1], [8])}, "copies.targets: expected 0 to 31, got -1"),
    "no copied token": ({"copies": ([5], [6], [0])}, "copies.tokens: expected 1 to 16, got 0"),
    "copied tokens": ({"copies": ([5], [6], [17])}, "copies.tokens: expected 1 to 16, got 17"),
    "copies to one page": ({"copies": ([5, 7], [6, 6], [8, 8])}, "copies.targets: expected distinct pages"),
    "copy of a copy": (
        {"copies": ([5, 6], [6, 7], [8, 8])},
        "copies.targets: expected distinct pages, none of which is copied",
    ),
    "draft id": ({**ROW, "row_counts": [2], "draft_counts": [1], "draft_ids": [50]}, "draft_ids: expected 0 to 49"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_plan_is_refused_whole(case: str) -> None:
    fields, reason = BROKEN[case]
    slots = table()
    before = (slots.n_known.copy(), slots.n_pages_held.copy(), slots.page_table.copy())
    with pytest.raises(PlanRefused) as refusal:
        slots.apply(plan(**fields))
    assert reason in str(refusal.value)
    for old, new in zip(before, (slots.n_known, slots.n_pages_held, slots.page_table), strict=True):
        assert (old == new).all()


def test_position_beyond_the_limit_is_refused() -> None:
    slots = SlotTable(CAPACITY)
    pages = {"page_slots": [0] * 7, "page_indices": range(7), "page_ids": range(7)}
    slots.apply(plan(new=[(0, 99)], **pages))
    slots.apply(plan(**{**ROW, "row_starts": [98]}))
    slots.apply(plan(**{**ROW, "row_starts": [99]}))
    with pytest.raises(PlanRefused, match="row_counts: expected positions below 100"):
        slots.apply(plan(**{**ROW, "row_starts": [100]}))


def test_sampled_token_may_be_planned_before_it_is_seen() -> None:
    slots = table()
    slots.apply(plan(**ROW))
    slots.apply(plan(**{**ROW, "row_starts": [20], "n_steps": 3}))
    assert slots.n_known[0] == 24


@st.composite
def plans(draw: st.DrawFn) -> tuple[SlotTable, Plan]:
    """A table with sequences of scattered pages and a plan over some of them."""
    n = draw(st.integers(1, 4))
    lengths = [draw(st.integers(1, 60)) for _ in range(n)]
    pages = draw(st.permutations(range(32)))
    slots = draw(st.permutations(range(4)))[:n]
    fields: dict[str, Any] = {"page_slots": [], "page_indices": [], "page_ids": []}
    for slot, length in zip(slots, lengths, strict=True):
        for index in range((length + 6) // PAGE_TOKENS + 1):
            fields["page_slots"].append(slot)
            fields["page_indices"].append(index)
            fields["page_ids"].append(pages.pop())
    fields |= {"new": list(zip(slots, lengths, strict=True))}
    rows: dict[str, list[int]] = {name: [] for name in ("row_slots", "row_starts", "row_counts", "row_samples")}
    draft_counts, draft_ids = [], []
    for slot, length in zip(slots, lengths, strict=True):
        drafts = draw(st.integers(0, 3))
        start = length - 1 if drafts else draw(st.integers(0, length - 1))
        count = drafts + 1 if drafts else draw(st.integers(1, min(length - start, 12)))
        rows["row_slots"].append(slot)
        rows["row_starts"].append(start)
        rows["row_counts"].append(count)
        rows["row_samples"].append(1 if drafts else draw(st.integers(0, 1)))
        draft_counts.append(drafts)
        draft_ids += [draw(st.integers(0, 49)) for _ in range(drafts)]
    table = SlotTable(CAPACITY)
    made = plan(**fields, **rows, draft_counts=draft_counts, draft_ids=draft_ids)
    table.apply(made)
    return table, made


@given(plans())
@examples(200)
def test_step_arrays_say_what_the_plan_says(case: tuple[SlotTable, Plan]) -> None:
    slots, made = case
    step = build_step(made, slots.page_table)
    assert (step.counts[: step.n_decode] == 1).all()
    assert (step.counts[step.n_decode :] > 1).all()
    rows = list(zip(made.row_slots.tolist(), made.row_starts.tolist(), made.row_counts.tolist(), strict=True))
    flat = {(slot, start + i) for slot, start, count in rows for i in range(count)}
    assert set(zip(step.token_slots.tolist(), step.positions.tolist(), strict=True)) == flat
    assert len(step.positions) == len(flat)
    for slot, position, place in zip(step.token_slots, step.positions, step.slot_mapping, strict=True):
        assert place == slots.page_table[slot, position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
    wanted = []
    for (slot, start, count), sampled, drafts in zip(rows, made.row_samples, made.draft_counts, strict=True):
        if sampled:
            wanted += [(slot, start + count - drafts + i) for i in range(drafts + 1)]
    got = list(zip(step.sample_slots.tolist(), step.sample_positions.tolist(), strict=True))
    assert got == wanted
    assert (step.token_slots[step.sample_index] == step.sample_slots).all()
    assert step.result_slots.tolist() == [row[0] for row, s in zip(rows, made.row_samples, strict=True) if s]
    places = list(zip(*(a.tolist() for a in draft_places(made)), strict=True))
    assert places == [
        (slot, start + 1 + i) for (slot, start, _), n in zip(rows, made.draft_counts, strict=True) for i in range(n)
    ]


def test_lease_moves_every_row() -> None:
    slots = table()
    made = plan(row_slots=[1, 0], row_starts=[4, 19], row_counts=[1, 1], row_samples=[1, 1], n_steps=3)
    slots.apply(made)
    for index in range(3):
        step = build_step(made, slots.page_table, index)
        assert step.positions.tolist() == [4 + index, 19 + index]
        assert step.sample_positions.tolist() == [5 + index, 20 + index]
        assert np.array_equal(step.result_slots, [1, 0])
