"""A model runner lets each plan wait for copies of its pages before anything of it is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.pages.plan_pages import pages_of
from messages.steps import Plan
from tests.support.workers.small_scheduler import SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model


class _Holds:
    """Notes the pages of each plan, and that none of them was written."""

    def __init__(self, storage: torch.Tensor) -> None:
        self._storage = storage
        self.pages: list[set[int]] = []

    def hold(self, plan: Plan, slots: SlotTable) -> None:
        new = set(plan.page_ids.tolist()).difference(*self.pages)
        assert new
        assert not self._storage[sorted(new)].any(), "a new page has been written"
        self.pages.append(set(pages_of(plan, slots).tolist()))


def test_a_plan_is_held_before_it_writes(tmp_path: Path) -> None:
    runner = load_runner(write_model(tmp_path), "cpu")
    runner._kv.storage.zero_()
    places: Any = _Holds(runner._kv.storage)
    runner.page_copies = places
    plans = SmallScheduler(runner)
    first = plans.add(range(1, 40))
    plans.prefill(first)
    copied = plans.add([*range(1, 40), 50], shares=first, n_shared=20)
    plans.prefill(copied)
    assert places.pages[0] == set(first.pages)
    assert places.pages[1] == {*copied.pages, first.pages[1]}, "with the page that is copied"
    assert runner._kv.storage[copied.pages].any()
