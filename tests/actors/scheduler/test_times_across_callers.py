"""What is computed for a caller does not depend on what others have asked: its times tell nothing of their prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.choice import EvictionName
from tests.support.planner_bench import PlannerBench

VICTIM, ATTACKER = b"victim", b"attack"
_Steps = list[tuple[int, int, bool]]


def computed_for(probe: list[int], asked_before: list[list[int]], *, by: bytes, eviction: str = "lru") -> _Steps:
    """The rows that are computed for a prompt of the attacker, after this caller has asked for others."""
    bench = PlannerBench({"eviction": eviction}, max_step_tokens=32)
    for prompt in asked_before:
        bench.add(prompt, 2, caller=by, cache_scope=by)
        bench.run()
    bench.add(probe, 2, caller=ATTACKER, cache_scope=ATTACKER)
    rows: _Steps = []
    while (planned := bench.plan()) is not None or bench.plans:
        rows += [(start, count, samples) for _, start, count, samples in bench.rows(planned)]
        bench.apply()
    return rows


@pytest.mark.parametrize("eviction", [name.value for name in EvictionName])
@given(st.integers(1, 100), st.integers(0, 100), st.integers(1, 4))
def test_a_prompt_of_another_caller_changes_no_step(eviction: str, n_probe: int, n_common: int, n_asked: int) -> None:
    probe = [i % 90 for i in range(n_probe)]
    like_it = [[*probe[:n_common], 91 + number] for number in range(n_asked)]  # whole, in part, or not at all
    unlike_it = [[95, *([96] * (len(one) - 1))] for one in like_it]
    known = computed_for(probe, like_it, by=VICTIM, eviction=eviction)
    unknown = computed_for(probe, unlike_it, by=VICTIM, eviction=eviction)
    assert known == unknown


def test_a_prompt_of_its_own_is_not_computed_again() -> None:
    probe = [i % 90 for i in range(64)]
    assert computed_for(probe, [probe], by=ATTACKER)[0][0] > 0
    assert computed_for(probe, [probe], by=VICTIM)[0][0] == 0
