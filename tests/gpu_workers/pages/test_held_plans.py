"""A model runner lets each plan wait for copies of its pages before anything of it is launched."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.layers.kv_pages import LayerGates
from gpu_workers.pages.plan_pages import pages_of
from messages.steps import Plan
from tests.support.workers.small_scheduler import Row, SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model


class _Holds:
    """Notes the pages of each plan, and that none of them was written."""

    def __init__(self, storage: torch.Tensor) -> None:
        self._storage = storage
        self.pages: list[set[int]] = []

    def hold(self, plan: Plan, slots: SlotTable) -> bool:
        new = set(plan.page_ids.tolist()).difference(*self.pages)
        assert new
        assert not self._storage[sorted(new)].any(), "a new page has been written"
        self.pages.append(set(pages_of(plan, slots).tolist()))
        return False


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


class _LateLayers(LayerGates):
    """Pages whose content comes one layer after the other, whenever a step waits for it."""

    def __init__(self, storage: torch.Tensor, pages: list[int]) -> None:
        self._storage, self._pages, self._content = storage, pages, storage[pages].clone()
        storage[pages] = 1e9
        self.layers: list[int] = []

    def wait(self, layer: int) -> None:
        self.layers.append(layer)
        self._storage[self._pages, layer] = self._content[:, layer]


def test_a_step_whose_pages_arrive_waits_for_each_layer(tmp_path: Path) -> None:
    runner = load_runner(write_model(tmp_path), "cpu")
    runner._programs = None  # which no device has that copies beside steps
    plans = SmallScheduler(runner)
    prompt = list(range(1, 60))
    first = plans.add(prompt)
    plans.prefill(first)
    late = _LateLayers(runner._kv.storage, first.pages[:2])
    runner._kv = dataclasses.replace(runner._kv, gates=late)
    runner.page_copies = SimpleNamespace(hold=lambda plan, slots: True)  # pyright: ignore[reportAttributeAccessIssue]
    again = plans.add(prompt, shares=first, n_shared=32)
    plans.prefill(again)
    assert late.layers == list(range(runner._kv.shape.n_layers))
    assert again.tokens == first.tokens


def test_the_time_of_a_step_whose_pages_arrive_is_not_known(tmp_path: Path) -> None:
    runner = load_runner(write_model(tmp_path), "cpu")
    runner.page_copies = SimpleNamespace(hold=lambda plan, slots: True)  # pyright: ignore[reportAttributeAccessIssue]
    plans = SmallScheduler(runner)
    plan = plans.write_plan([Row(plans.add([1, 2, 3]), 3)])
    (result,) = runner.collect(runner.launch(plan))
    assert math.isnan(result.compute_s)
