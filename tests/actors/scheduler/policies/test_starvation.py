"""Nobody starves: what waits is computed although others never stop coming, whatever dies and however clocks jump."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.depth import examples
from tests.support.scheduler.endless_flood import EndlessFlood, Harm

_N_BACKLOG_STEPS = 900  # more than those take that are before a sequence whose turn has come: at most 13 of 24 steps
_PATIENCE_S = 60.0  # of the policy `sla`


def harm_of(chance: random.Random) -> Harm:
    """None at all, or deaths and jumps."""
    return Harm(chance.choice((0.0, 0.03, 0.1)), chance.choice((0.0, 0.0, 0.02)), chance.choice((1.0, 300.0)))


def n_steps_until_over(flood: EndlessFlood, name: str, most: int) -> int:
    """How many steps of the flood it takes; `most` if it takes more."""
    for number in range(most):
        if flood.is_over(name):
            return number
        flood.step()
    return most


def urgent(chance: random.Random) -> Mapping[str, Any]:
    return {"priority": chance.randint(0, 2)}


def timely(chance: random.Random) -> Mapping[str, Any]:
    """Terms that can be kept, and that come before those who have none."""
    return {"deadline_ms": chance.uniform(3e4, 5e4)}


def mixed(chance: random.Random) -> Mapping[str, Any]:
    """Terms of which some can be kept, some not, and some allow more than any patience."""
    kinds: list[dict[str, Any]] = [
        {},
        {"ttft_ms": chance.uniform(0.01, 2e4)},
        {"deadline_ms": chance.uniform(0.01, 6e4)},
        {"ttft_ms": chance.uniform(1.0, 1e3), "deadline_ms": chance.uniform(1e3, 1e7)},
    ]
    return chance.choice(kinds)


@given(st.integers(0, 2**32))
@examples(15)
def test_ageing_brings_every_priority_to_its_turn(seed: int) -> None:
    chance = random.Random(seed)
    ageing_s, step_s, priority = chance.uniform(1.0, 4.0), chance.uniform(0.05, 0.2), chance.randint(3, 8)
    settings = {"policy": "priority", "ageing_s": ageing_s}
    flood = EndlessFlood(settings, chance, lambda: urgent(chance), step_s, harm_of(chance))
    for _ in range(chance.randint(0, 20)):
        flood.step()
    wanted = flood.submit(chance.randint(1, 60), max_tokens=chance.randint(1, 20), priority=priority)
    most = int(priority * ageing_s / step_s) + _N_BACKLOG_STEPS
    assert n_steps_until_over(flood, wanted, most) < most


def test_without_ageing_the_same_others_starve_it() -> None:
    chance = random.Random(1)
    flood = EndlessFlood({"policy": "priority", "ageing_s": 0.0}, chance, lambda: urgent(chance), 0.5, Harm())
    assert n_steps_until_over(flood, flood.submit(10, priority=6), 2000) == 2000


@given(st.integers(0, 2**32))
@examples(15)
def test_deadlines_of_others_delay_nobody_beyond_its_own_or_a_minute(seed: int) -> None:
    chance = random.Random(seed)
    step_s, terms_of_others = chance.uniform(0.05, 0.2), chance.choice((timely, mixed))
    flood = EndlessFlood({"policy": "sla"}, chance, lambda: terms_of_others(chance), step_s, harm_of(chance))
    for _ in range(chance.randint(0, 20)):
        flood.step()
    terms = chance.choice([{}, {"ttft_ms": 0.01}, {"ttft_ms": 3e4}, {"deadline_ms": 1e5}])
    wanted = flood.submit(chance.randint(1, 60), max_tokens=chance.randint(1, 20), **terms)
    longest_s = max(_PATIENCE_S, terms.get("deadline_ms", 0.0) / 1000)
    most = int(longest_s / step_s) + _N_BACKLOG_STEPS
    assert n_steps_until_over(flood, wanted, most) < most
