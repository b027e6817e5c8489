"""The pages of a plan are all that its steps read and write."""

from __future__ import annotations

import random

import pytest

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.batch.step_arrays import build_step
from gpu_workers.pages.plan_pages import pages_of
from messages.steps import PAGE_TOKENS, EngineCapacity
from tests.support.depth import at_depth
from tests.support.workers.small_scheduler import Row
from tests.support.workers.worker_stage import writer

_CAPACITY = EngineCapacity(
    n_pages=64, n_slots=4, max_length=256, max_step_tokens=256, max_lease_steps=4, vocabulary=1 << 31, device="none"
)


@pytest.mark.parametrize("seed", range(at_depth(10)))
def test_every_position_that_a_step_computes_lies_in_a_page_of_its_plan(seed: int) -> None:
    rng, plans, slots = random.Random(seed), writer(), SlotTable(_CAPACITY)
    sequences = [plans.add(range(rng.randrange(1, 80))) for _ in range(3)]
    plan = plans.write_plan([Row(one, len(one.tokens)) for one in sequences])
    for _ in range(6):
        slots.apply(plan)
        pages = set(pages_of(plan, slots).tolist())
        for index in range(plan.n_steps):
            step = build_step(plan, slots.page_table, index)
            assert {int(one) // PAGE_TOKENS for one in step.slot_mapping} <= pages
        chosen = rng.sample(sequences, rng.randrange(1, 4))
        plan = plans.write_plan([Row(one) for one in chosen], n_steps=rng.randrange(1, 5))
