"""What steps cost, as learnt from their times."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.planning.step_cost import StepCost
from tests.support.depth import examples

_TOKEN_S, _PAIR_S, _DECODE_S = 22e-6, 1.6e-9, 5e-3


def pairs(start: int, n_tokens: int) -> int:
    return start * n_tokens + n_tokens * n_tokens // 2


def prompt_s(start: int, n_tokens: int) -> float:
    return n_tokens * _TOKEN_S + pairs(start, n_tokens) * _PAIR_S


def learn(cost: StepCost, start: int, n_tokens: int, n_rows: int = 0) -> None:
    took_s = prompt_s(start, n_tokens) + (_DECODE_S if n_rows else 0.0)
    cost.learn(n_rows, n_tokens, pairs(start, n_tokens), took_s)


def learnt(seed: int = 0) -> StepCost:
    cost, rng = StepCost(), random.Random(seed)
    cost.learn(8, 0, 0, _DECODE_S)
    for _ in range(300):
        learn(cost, rng.choice([0, 1000, 30_000, 100_000]), rng.choice([200, 700, 2000]), n_rows=8)
    return cost


@pytest.mark.parametrize(("start", "n_tokens"), [(0, 500), (4000, 800), (90_000, 512)])
def test_steps_of_all_lengths_teach_both_constants(start: int, n_tokens: int) -> None:
    cost = learnt()
    assert cost.prompt_s(start, n_tokens) == pytest.approx(prompt_s(start, n_tokens), rel=0.1)
    assert cost.decode_s(8) == pytest.approx(_DECODE_S)
    assert cost.decode_s(100) > cost.decode_s(8)


@given(st.integers(0, 120_000), st.floats(0.0, 1.0), st.integers(1, 8192))
@examples(200)
def test_tokens_within_a_limit_cost_no_more_and_one_token_more_costs_more(start: int, limit_s: float, most: int) -> None:
    cost = learnt()
    n_tokens = cost.tokens_within(start, limit_s, most)
    assert 0 <= n_tokens <= most
    assert cost.prompt_s(start, n_tokens) <= limit_s * 1.001 + 1e-9
    if n_tokens < most:
        assert cost.prompt_s(start, n_tokens + 2) > limit_s


def test_the_first_prompt_is_enough_for_a_first_estimate() -> None:
    cost = StepCost()
    assert not cost.is_known
    learn(cost, 0, 512)
    assert cost.is_known
    assert cost.prompt_s(0, 1000) == pytest.approx(prompt_s(0, 1000), rel=0.3)


def test_a_pause_of_the_machine_is_forgotten_soon() -> None:
    cost = learnt()
    before_s = cost.prompt_s(2000, 500)
    cost.learn(8, 500, pairs(2000, 500), 3.0)
    cost.learn(8, 0, 0, 3.0)
    assert cost.prompt_s(2000, 500) < 1.5 * before_s
    assert cost.decode_s(8) < 1.5 * _DECODE_S
    for _ in range(20):
        learn(cost, 2000, 500, n_rows=8)
        cost.learn(8, 0, 0, _DECODE_S)
    assert cost.prompt_s(2000, 500) == pytest.approx(before_s, rel=0.1)
    assert cost.decode_s(8) == pytest.approx(_DECODE_S, rel=0.1)


def test_steps_that_took_no_time_do_not_stay_free_of_charge() -> None:
    cost = StepCost()
    cost.learn(8, 0, 0, 0.0)
    cost.learn(8, 500, pairs(0, 500), 0.0)
    assert cost.is_known
    assert cost.tokens_within(0, 1e-3, 8192) == 8192
    for _ in range(10):
        cost.learn(8, 0, 0, _DECODE_S)
        learn(cost, 0, 500, n_rows=8)
    assert cost.tokens_within(0, 1e-3, 8192) < 200


@pytest.mark.parametrize("took_s", [float("nan"), float("inf"), -1.0])
def test_a_wrong_clock_teaches_nothing(took_s: float) -> None:
    cost = learnt()
    before = (cost.decode_s(9), cost.prompt_s(10, 100))
    cost.learn(8, 0, 0, took_s)
    cost.learn(8, 100, 5000, took_s)
    assert (cost.decode_s(9), cost.prompt_s(10, 100)) == before


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9000), st.integers(0, 10**6), st.floats(0.0, 10.0)), max_size=50))
@examples(100)
def test_costs_are_never_negative_whatever_steps_take(steps: list[tuple[int, int, int, float]]) -> None:
    cost = StepCost()
    for n_rows, n_tokens, start, took_s in steps:
        cost.learn(n_rows, n_tokens, pairs(start, n_tokens), took_s)
    assert cost.decode_s(10) >= 0.0
    assert cost.prompt_s(5000, 100) >= 0.0
    assert 0 <= cost.tokens_within(5000, 0.02, 100) <= 100
