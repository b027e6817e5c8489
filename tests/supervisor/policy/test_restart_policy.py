"""The restart decision, case by case; names are the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.outcomes import ExitCode
from supervisor.policy.actions import GiveUp, Kill, Start
from supervisor.policy.child_spec import Budget, Group, Strategy
from supervisor.policy.restart_policy import RestartPolicy
from tests.support.supervisor.trees import BUDGET, group

GANG = ("worker/0.0", "worker/0.1", "worker/0.2")


def policy_of(*groups: Group, ready: bool = True) -> RestartPolicy:
    """A policy whose children all live in incarnation 1."""
    policy = RestartPolicy(groups)
    names = [child.name for g in groups for child in g.children]
    for name in names:
        policy.started(name, 1)
    for name in names:
        if ready:
            policy.became_ready(name, 1, 0.0)
    return policy


def test_one_for_one_restarts_only_the_dead() -> None:
    policy = policy_of(group("gateway/0", "gateway/1"))
    assert policy.died("gateway/0", 1, 0.0) == [Start(("gateway/0",), 0.0)]


def test_one_for_all_kills_siblings_first() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL))
    actions = policy.died("worker/0.1", 1, 0.0)
    assert [a.name for a in actions if isinstance(a, Kill)] == ["worker/0.0", "worker/0.2"]
    assert not any(isinstance(a, Start) for a in actions)


def test_one_for_all_starts_after_the_last_proven_death_in_order() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL))
    policy.died("worker/0.1", 1, 0.0)
    assert policy.died("worker/0.2", 1, 0.1) == []
    assert policy.died("worker/0.0", 1, 0.2) == [Start(GANG, 0.0)]


def test_what_is_left_of_a_budget_comes_back_with_time() -> None:
    policy = policy_of(group("gateway/0", budget=Budget(2, 60.0, 3, 3)))
    assert policy.restarts_left("gateway/0", 0.0) == 2
    policy.died("gateway/0", 1, 10.0)
    assert [policy.restarts_left("gateway/0", now_s) for now_s in (10.0, 69.9, 70.0)] == [1, 1, 2]


def test_one_for_all_counts_one_incident() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL, budget=Budget(1, 60.0, 3, 3)))
    actions = [a for name in GANG for a in policy.died(name, 1, 0.0)]
    assert not any(isinstance(a, GiveUp) for a in actions)


def test_one_for_all_that_dies_together_is_started_once() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL))
    actions = [a for name in GANG for a in policy.died(name, 1, 0.0)]
    assert [a for a in actions if isinstance(a, Start)] == [Start(GANG, 0.0)]


def test_other_groups_are_bystanders() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL), group("scheduler/0"))
    assert all(isinstance(a, Kill) and a.name in GANG for a in policy.died("worker/0.0", 1, 0.0))


def test_stale_exit_is_ignored() -> None:
    policy = policy_of(group("gateway/0"))
    policy.died("gateway/0", 1, 0.0)
    policy.started("gateway/0", 2)
    assert policy.died("gateway/0", 1, 0.0) == []


def test_second_report_of_one_death_is_ignored() -> None:
    policy = policy_of(group("gateway/0"))
    policy.died("gateway/0", 1, 0.0)
    assert policy.died("gateway/0", 1, 0.0) == []


def test_budget_exhausted_stops_everything() -> None:
    policy = policy_of(group("gateway/0", budget=Budget(2, 60.0, 9, 9)))
    for incarnation in (1, 2):
        assert isinstance(policy.died("gateway/0", incarnation, 0.0)[0], Start)
        policy.started("gateway/0", incarnation + 1)
        policy.became_ready("gateway/0", incarnation + 1, 0.0)
    [action] = policy.died("gateway/0", 3, 0.0)
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.BUDGET_SPENT
    assert "at most 2 restarts" in action.reason


def test_budget_comes_back_when_the_window_has_passed() -> None:
    policy = policy_of(group("gateway/0", budget=Budget(1, 60.0, 9, 9)))
    for incarnation, at_s in ((1, 0.0), (2, 60.0), (3, 120.0)):
        assert policy.died("gateway/0", incarnation, at_s) == [Start(("gateway/0",), 0.0)]
        policy.started("gateway/0", incarnation + 1)
        policy.became_ready("gateway/0", incarnation + 1, 0.0)


def restart_delays(life_s: float, count: int) -> list[float]:
    """Pauses before the restarts of a child that dies `life_s` seconds after each Ready."""
    policy = policy_of(group("gateway/0", budget=Budget(100, 60.0, 100, 100)))
    delays = []
    for incarnation in range(1, count + 1):
        [action] = policy.died("gateway/0", incarnation, 10.0 * incarnation + life_s)
        assert isinstance(action, Start)
        delays.append(action.delay_s)
        policy.started("gateway/0", incarnation + 1)
        policy.became_ready("gateway/0", incarnation + 1, 10.0 * (incarnation + 1))
    return delays


def test_incarnations_that_served_are_followed_at_once() -> None:
    assert restart_delays(life_s=1.0, count=9) == [0.0] * 9


def test_short_incarnations_wait_twice_as_long_up_to_a_bound() -> None:
    delays = restart_delays(life_s=0.5, count=14)
    assert delays[:5] == [0.0, 0.0, 0.02, 0.04, 0.08]
    assert delays[-1] == 2.0


def test_a_start_that_never_becomes_ready_fails_the_start() -> None:
    policy = policy_of(group("worker/0.0"), ready=False)
    for incarnation in (1, 2):
        assert isinstance(policy.died("worker/0.0", incarnation, 0.0)[0], Start)
        policy.started("worker/0.0", incarnation + 1)
    [action] = policy.died("worker/0.0", 3, 0.0)
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.NOT_STARTED


def test_restarts_that_never_become_ready_again_spend_the_budget() -> None:
    policy = policy_of(group("worker/0.0", budget=Budget(100, 60.0, 9, 2)))
    policy.died("worker/0.0", 1, 0.0)
    policy.started("worker/0.0", 2)
    policy.died("worker/0.0", 2, 100.0)
    policy.started("worker/0.0", 3)
    [action] = policy.died("worker/0.0", 3, 200.0)
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.BUDGET_SPENT


def test_a_tree_that_is_shot_at_is_not_one_that_cannot_live() -> None:
    policy = policy_of(group("worker/0.0", budget=Budget(100, 60.0, 2, 2)))
    for incarnation in range(1, 50):
        assert policy.died("worker/0.0", incarnation, 0.0, is_foreign=True) == [Start(("worker/0.0",), 0.0)]
        policy.started("worker/0.0", incarnation + 1)


def test_a_first_start_that_is_shot_at_is_tried_as_often_as_a_later_one() -> None:
    """A server that goes on after a loss of power has requests in its journals, and must not give up for three kills."""
    policy = policy_of(group("worker/0.0", budget=Budget(100, 60.0, 1, 9)), ready=False)
    for incarnation in range(1, 9):
        [action] = policy.died("worker/0.0", incarnation, 0.0, is_foreign=True)
        assert isinstance(action, Start)
        policy.started("worker/0.0", incarnation + 1)
    [action] = policy.died("worker/0.0", 9, 0.0, is_foreign=True)
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.NOT_STARTED


def test_kills_from_outside_do_not_hide_a_first_start_that_fails() -> None:
    policy = policy_of(group("worker/0.0", budget=Budget(100, 60.0, 2, 9)), ready=False)
    for incarnation, is_foreign in enumerate((True, False, True), 1):
        [action] = policy.died("worker/0.0", incarnation, 0.0, is_foreign=is_foreign)
        assert isinstance(action, Start)
        policy.started("worker/0.0", incarnation + 1)
    [action] = policy.died("worker/0.0", 4, 0.0)
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.NOT_STARTED


def test_failed_starts_are_forgotten_when_the_whole_group_is_ready() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL, budget=Budget(100, 1.0, 2, 2)), ready=False)
    for name in GANG:
        policy.died(name, 1, 0.0)
    for name in GANG:
        policy.started(name, 2)
        policy.became_ready(name, 2, 0.0)
    assert not any(isinstance(a, GiveUp) for name in GANG for a in policy.died(name, 2, 10.0))


def test_a_start_that_cannot_succeed_is_not_tried_again() -> None:
    policy = policy_of(group("gateway/0"), ready=False)
    assert policy.died("gateway/0", 1, 0.0, "bad model") == [GiveUp(ExitCode.NOT_STARTED, "bad model", "gateway/0")]


def test_a_group_that_has_been_ready_is_tried_again_whatever_its_reason() -> None:
    """What worked may work again: the memory of a GPU may be free a moment later."""
    policy = policy_of(group("gateway/0"))
    assert policy.died("gateway/0", 1, 10.0, "no memory") == [Start(("gateway/0",), 0.0)]


def test_deaths_while_stopping_are_wanted() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL))
    policy.stopping()
    assert [policy.died(name, 1, 0.0) for name in GANG] == [[], [], []]


def test_a_name_stands_once_in_the_tree() -> None:
    with pytest.raises(ValueError, match=r"gateway/0 twice"):
        RestartPolicy((group("gateway/0"), group("gateway/0")))


@given(st.lists(st.tuples(st.sampled_from((*GANG, "scheduler/0")), st.booleans()), max_size=40), st.sampled_from(Strategy))
def test_every_dead_child_is_started_exactly_once(events: list[tuple[str, bool]], strategy: Strategy) -> None:
    """Whatever dies in whatever order: a child is started only while it is dead, kills hit only the living, and when all
    kills have been carried out all children live again."""
    budget = Budget(1000, 1.0, 1000, 1000)
    policy = policy_of(group(*GANG, strategy=strategy, budget=budget), group("scheduler/0", budget=budget))
    incarnation: dict[str, int] = dict.fromkeys((*GANG, "scheduler/0"), 1)
    alive, doomed = set(incarnation), list[str]()

    def die(name: str) -> None:
        alive.discard(name)
        for action in policy.died(name, incarnation[name], 0.0):
            if isinstance(action, Kill):
                assert action.name in alive
                doomed.append(action.name)
            elif isinstance(action, Start):
                for started in action.names:
                    assert started not in alive
                    incarnation[started] += 1
                    alive.add(started)
                    policy.started(started, incarnation[started])

    for name, carry_out_first in events:
        if carry_out_first and doomed:
            die(doomed.pop(0))
        elif name in alive and name not in doomed:
            die(name)
    while doomed:
        die(doomed.pop(0))
    assert alive == set(incarnation)


def test_budget_names_the_bad_value() -> None:
    with pytest.raises(ValueError, match=r"restarts: expected 0 or more, got -1"):
        Budget(-1, BUDGET.window_s, 1, 1)
    with pytest.raises(ValueError, match=r"window_s: expected more than 0 seconds, got 0"):
        Budget(1, 0, 1, 1)
    with pytest.raises(ValueError, match=r"start_attempts: expected 1 or more, got 0"):
        Budget(1, 1.0, 0, 1)


def test_the_others_of_a_group_are_killed_when_one_begins_to_end() -> None:
    """Its death is still the one that counts, in whatever order the deaths are proven."""
    for order in (GANG, GANG[::-1]):
        policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL, budget=Budget(5, 60.0, 9, 9)))
        kills = policy.ending("worker/0.0", 1)
        assert [a.name for a in kills if isinstance(a, Kill)] == ["worker/0.1", "worker/0.2"]
        assert policy.ending("worker/0.1", 1) == [], "it was killed"
        actions = [a for name in order for a in policy.died(name, 1, 0.0)]
        assert actions == [Start(GANG, 0.0)]
        assert policy.restarts_left("worker/0.0", 0.0) == 4


def test_nobody_is_killed_with_one_that_ends_alone() -> None:
    policy = policy_of(group("gateway/0", "gateway/1"))
    assert policy.ending("gateway/0", 1) == []
    assert policy.ending("gateway/0", 7) == []
    assert policy.died("gateway/0", 1, 0.0) == [Start(("gateway/0",), 0.0)]


def test_the_ends_of_a_stop_kill_nobody() -> None:
    policy = policy_of(group(*GANG, strategy=Strategy.ONE_FOR_ALL))
    policy.stopping()
    assert policy.ending("worker/0.0", 1) == []
