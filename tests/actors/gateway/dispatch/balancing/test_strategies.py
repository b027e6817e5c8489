"""What each balancing strategy chooses, and that it spreads work evenly."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.balancing.choice import STRATEGIES, make_strategy
from actors.gateway.dispatch.balancing.strategy import Candidate, ChoiceReason
from actors.gateway.settings import BalancingName

NAMES = [f"scheduler/{replica}" for replica in range(4)]
ONES = st.builds(Candidate, st.just(""), st.integers(0, 10_000), st.floats(0.0, 1e6), st.integers(0, 50))
CANDIDATES = st.lists(ONES, min_size=2, max_size=4).map(
    lambda ones: [
        Candidate(name, one.load_tokens, one.recent_tokens, one.pages) for name, one in zip(NAMES, ones, strict=False)
    ]
)


def one(replica: int, load: int = 0, recent: float = 0.0, pages: int = 0) -> Candidate:
    return Candidate(NAMES[replica], load, recent, pages)


def test_the_setting_names_every_strategy() -> None:
    assert set(STRATEGIES) == set(get_args(BalancingName))


@given(st.sampled_from(sorted(STRATEGIES)), CANDIDATES, st.integers(1, 5_000))
def test_every_choice_is_a_candidate(name: BalancingName, candidates: list[Candidate], n_tokens: int) -> None:
    assert make_strategy(name).choose(candidates, n_tokens).name in [each.name for each in candidates]


@given(CANDIDATES, st.integers(1, 5_000))
def test_least_tokens_never_takes_one_with_clearly_more_to_do(candidates: list[Candidate], n_tokens: int) -> None:
    chosen = make_strategy("least_tokens").choose(candidates, n_tokens).name
    load = next(each.load_tokens for each in candidates if each.name == chosen)
    assert load <= 1.25 * min(each.load_tokens for each in candidates) + n_tokens


@given(CANDIDATES, st.integers(1, 5_000))
def test_a_prefix_is_followed_only_below_both_ceilings(candidates: list[Candidate], n_tokens: int) -> None:
    choice = make_strategy("prefix").choose(candidates, n_tokens)
    chosen = next(each for each in candidates if each.name == choice.name)
    if choice.why is ChoiceReason.PREFIX:
        assert chosen.pages
        assert chosen.load_tokens <= 2 * min(each.load_tokens for each in candidates) + 8 * n_tokens
    else:
        assert chosen.load_tokens <= 1.25 * min(each.load_tokens for each in candidates) + n_tokens


def test_the_holder_of_a_prefix_wins_until_it_has_more_than_its_share() -> None:
    prefix = make_strategy("prefix")
    assert prefix.choose([one(0), one(1, load=500, pages=9)], 100).name == NAMES[1]
    assert prefix.choose([one(0), one(1, load=900, pages=9)], 100).why is ChoiceReason.SPREAD
    assert prefix.choose([one(0), one(1, recent=5_000.0, pages=9)], 100).name == NAMES[0]
    both = [one(0, load=200, recent=900.0, pages=9), one(1, load=200, recent=800.0, pages=9)]
    assert prefix.choose(both, 100).name == NAMES[1], "both hold it now: the one that has had less"
    assert prefix.choose([one(0, load=50), one(1)], 10).why is ChoiceReason.LOAD


def test_round_robin_takes_turns_also_when_some_are_missing() -> None:
    turns = make_strategy("round_robin")
    all_three = [one(0), one(1), one(2)]
    assert [turns.choose(all_three, 1).name[-1] for _ in range(4)] == ["0", "1", "2", "0"]
    assert [turns.choose([one(0), one(2)], 1).name[-1] for _ in range(3)] == ["2", "0", "2"]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_idle_replicas_get_equal_shares(name: BalancingName) -> None:
    strategy, recent = make_strategy(name), dict.fromkeys(NAMES, 0.0)
    for turn in range(400):
        candidates = [Candidate(each, 0, recent[each], 0) for each in NAMES]
        recent[strategy.choose(candidates, 100 + turn % 7).name] += 100 + turn % 7
    assert max(recent.values()) - min(recent.values()) <= 107 * (7 if name == "round_robin" else 1)
