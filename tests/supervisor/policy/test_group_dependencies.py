"""Groups that need other groups: they go down with them and are started with them, after the last proven death."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.actions import Action, Kill, Start
from supervisor.policy.child_spec import Budget, Group, Strategy
from supervisor.policy.restart_policy import RestartPolicy
from tests.support.supervisor.trees import group

GENEROUS = Budget(10_000, 1.0, 10_000, 10_000)
MEMORY = group("cache_directory/0", budget=GENEROUS)
GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, budget=GENEROUS, needs=("cache_directory/0",))
PLANNER = group("scheduler/0", budget=GENEROUS, needs=("worker/0.0+worker/0.1",))
GATEWAY = group("gateway/0", budget=GENEROUS)


def ready_policy(*groups: Group) -> RestartPolicy:
    """A policy whose children are all ready in incarnation 1."""
    policy = RestartPolicy(groups)
    for child in [child for g in groups for child in g.children]:
        policy.started(child.name, 1)
        policy.became_ready(child.name, 1, 0.0)
    return policy


def victims(actions: list[Action]) -> list[str]:
    """The names that are to be killed."""
    return [action.name for action in actions if isinstance(action, Kill)]


def test_who_needs_the_dead_goes_down_too() -> None:
    policy = ready_policy(MEMORY, GANG, GATEWAY)
    actions = policy.died("cache_directory/0", 1, 10.0)
    assert actions == [
        Kill("worker/0.0", "cache_directory/0 that worker/0.0 needs died"),
        Kill("worker/0.1", "cache_directory/0 that worker/0.1 needs died"),
    ]


def test_all_are_started_in_order_after_the_last_proven_death() -> None:
    policy = ready_policy(MEMORY, GANG, GATEWAY)
    policy.died("cache_directory/0", 1, 10.0)
    assert policy.died("worker/0.1", 1, 10.1) == []
    assert policy.died("worker/0.0", 1, 10.2) == [Start(("cache_directory/0", "worker/0.0", "worker/0.1"), 0.0)]


def test_need_is_passed_on() -> None:
    policy = ready_policy(MEMORY, GANG, PLANNER, GATEWAY)
    assert victims(policy.died("cache_directory/0", 1, 10.0)) == ["worker/0.0", "worker/0.1", "scheduler/0"]


def test_what_is_needed_stays_when_a_dependent_dies() -> None:
    policy = ready_policy(MEMORY, GANG, GATEWAY)
    assert victims(policy.died("worker/0.0", 1, 10.0)) == ["worker/0.1"]
    assert policy.died("worker/0.1", 1, 10.0) == [Start(("worker/0.0", "worker/0.1"), 0.0)]


def test_a_recovery_widens_when_what_it_needs_dies_meanwhile() -> None:
    policy = ready_policy(MEMORY, GANG, GATEWAY)
    assert victims(policy.died("worker/0.0", 1, 10.0)) == ["worker/0.1"]
    assert policy.died("cache_directory/0", 1, 10.0) == []
    assert policy.died("worker/0.1", 1, 10.0) == [Start(("cache_directory/0", "worker/0.0", "worker/0.1"), 0.0)]


def test_a_dependent_that_waits_for_its_start_is_not_started_twice() -> None:
    policy = ready_policy(MEMORY, GANG, GATEWAY)
    policy.died("worker/0.0", 1, 10.0)
    policy.died("worker/0.1", 1, 10.0)
    assert policy.died("cache_directory/0", 1, 10.0) == [Start(("cache_directory/0",), 0.0)]


def test_only_the_first_death_is_counted() -> None:
    lean = group("worker/0.0", strategy=Strategy.ONE_FOR_ALL, budget=Budget(1, 60.0, 9, 9), needs=("cache_directory/0",))
    policy = ready_policy(MEMORY, lean)
    policy.died("cache_directory/0", 1, 10.0)
    policy.died("worker/0.0", 1, 10.0)
    assert policy.restarts_left("worker/0.0", 10.0) == 1


@pytest.mark.parametrize("needs", [("worker/0.0+worker/0.1",), ("nobody",), ("gateway/0",)])
def test_needs_name_groups_that_start_before(needs: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"gateway/0\.needs: expected groups that start before it"):
        RestartPolicy((group("gateway/0", needs=needs), GANG))


def test_a_title_stands_once_in_the_tree() -> None:
    with pytest.raises(ValueError, match=r"title: expected each group once, got gateway/0 twice"):
        RestartPolicy((GATEWAY, GATEWAY))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40))
def test_a_dependent_never_runs_beside_a_dead_need(events: list[tuple[int, bool]]) -> None:
    """Deaths in any order, kills carried out at any time: starts hit only the dead, kills only the living, all come back, and
    what is needed is never started while a process that used its previous incarnation is alive."""
    groups = (MEMORY, GANG, PLANNER, GATEWAY)
    policy = ready_policy(*groups)
    names = [child.name for g in groups for child in g.children]
    incarnation = dict.fromkeys(names, 1)
    alive, doomed = set(names), list[str]()

    def die(name: str) -> None:
        alive.discard(name)
        for action in policy.died(name, incarnation[name], 0.0):
            if isinstance(action, Kill):
                assert action.name in alive
                doomed.append(action.name)
            elif isinstance(action, Start):
                assert alive.isdisjoint(action.names)
                if "cache_directory/0" in action.names:
                    assert alive <= {"gateway/0"}
                for started in action.names:
                    incarnation[started] += 1
                    alive.add(started)
                    policy.started(started, incarnation[started])

    for index, carry_out_first in events:
        if carry_out_first and doomed:
            die(doomed.pop(0))
        elif names[index] in alive and names[index] not in doomed:
            die(names[index])
    while doomed:
        die(doomed.pop(0))
    assert alive == set(names)
