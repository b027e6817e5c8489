"""Two gangs of one replica: the standby gang is promoted when the active one dies, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.policy.actions import Kill, Promote, Start
from supervisor.policy.child_spec import Budget, Group, Strategy
from supervisor.policy.history import Memory
from supervisor.policy.restart_policy import RestartPolicy
from tests.support.supervisor.trees import group

ACTIVE = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL)
STANDBY = group("worker/0.0b", "worker/0.1b", strategy=Strategy.ONE_FOR_ALL, standby_of=ACTIVE.title)
A, B = ("worker/0.0", "worker/0.1"), ("worker/0.0b", "worker/0.1b")


def pair(*, ready: tuple[str, ...], memory: Group | None = None) -> RestartPolicy:
    """A policy of both gangs in incarnation 1, of which these children are ready."""
    groups = (ACTIVE, STANDBY) if memory is None else (memory, *(with_need(g, memory.title) for g in (ACTIVE, STANDBY)))
    policy = RestartPolicy(groups)
    for child in [child for g in groups for child in g.children]:
        policy.started(child.name, 1)
        if child.name in ready or child.name.startswith("cache"):
            policy.became_ready(child.name, 1, 0.0)
    return policy


def with_need(one: Group, title: str) -> Group:
    """The same group, which needs another."""
    names = [child.name for child in one.children]
    return group(*names, strategy=one.strategy, budget=one.budget, needs=(title,), standby_of=one.standby_of)


def kill_gang(policy: RestartPolicy, names: tuple[str, ...], incarnation: int, now_s: float) -> list[object]:
    """Report the deaths of all ranks; returns all actions."""
    return [action for name in names for action in policy.died(name, incarnation, now_s)]


def test_roles_at_the_start() -> None:
    policy = pair(ready=())
    assert [policy.is_standby(name) for name in (*A, *B)] == [False, False, True, True]


def test_a_ready_standby_is_promoted_after_the_last_proven_death() -> None:
    policy = pair(ready=(*A, *B))
    assert policy.died("worker/0.1", 1, 10.0) == [Kill("worker/0.0", "worker/0.1 of the same group died")]
    assert policy.died("worker/0.0", 1, 10.1) == [Promote(B, A), Start(A, 0.0)]
    assert [policy.is_standby(name) for name in (*A, *B)] == [True, True, False, False]


def test_the_next_standby_waits_until_the_takeover_is_over() -> None:
    groups = tuple(replace(one, standby_pause_s=1.5) for one in (ACTIVE, STANDBY))
    policy = RestartPolicy(groups)
    for name in (*A, *B):
        policy.started(name, 1)
        policy.became_ready(name, 1, 0.0)
    assert kill_gang(policy, A, 1, 10.0)[-2:] == [Promote(B, A), Start(A, 1.5)]
    assert kill_gang(policy, B, 1, 10.5)[-1] == Start(B, 0.0), "nobody takes over, so it starts at once"


def test_a_standby_that_is_not_ready_is_not_promoted() -> None:
    policy = pair(ready=(*A, "worker/0.0b"))
    assert kill_gang(policy, A, 1, 10.0)[-1] == Start(A, 0.0)
    assert not policy.is_standby("worker/0.0")


def test_a_dying_standby_is_not_promoted() -> None:
    policy = pair(ready=(*A, *B))
    policy.died("worker/0.0b", 1, 10.0)
    assert [type(action) for action in kill_gang(policy, A, 1, 10.0)] == [Kill, Start]


def test_a_standby_that_becomes_ready_takes_over_from_a_gang_that_starts_again() -> None:
    policy = pair(ready=(*A, "worker/0.0b"))
    kill_gang(policy, A, 1, 10.0)
    policy.started("worker/0.0", 2)
    assert policy.became_ready("worker/0.1b", 1, 11.0) == [Promote(B, A)]
    assert [policy.is_standby(name) for name in (*A, *B)] == [True, True, False, False]
    policy.started("worker/0.1", 2)
    assert [policy.became_ready(name, 2, 12.0) for name in A] == [[], []]  # the new standby waits


def test_a_standby_that_becomes_ready_waits_for_the_proven_death_of_the_active_gang() -> None:
    policy = pair(ready=(*A, "worker/0.0b"))
    assert policy.died("worker/0.1", 1, 10.0) == [Kill("worker/0.0", "worker/0.1 of the same group died")]
    assert policy.became_ready("worker/0.1b", 1, 10.1) == []
    assert policy.died("worker/0.0", 1, 10.2) == [Promote(B, A), Start(A, 0.0)]


def test_a_standby_that_is_ready_first_does_not_take_over_from_a_gang_that_has_never_served() -> None:
    policy = pair(ready=())
    assert [policy.became_ready(name, 1, 1.0) for name in (*B, *A)] == [[], [], [], []]
    assert [policy.is_standby(name) for name in (*A, *B)] == [False, False, True, True]


def test_the_death_of_a_standby_leaves_the_active_gang_alone() -> None:
    policy = pair(ready=(*A, *B))
    assert kill_gang(policy, B, 1, 10.0) == [Kill("worker/0.1b", "worker/0.0b of the same group died"), Start(B, 0.0)]


def test_roles_change_back_at_the_next_death() -> None:
    policy = pair(ready=(*A, *B))
    kill_gang(policy, A, 1, 10.0)
    for name in A:
        policy.started(name, 2)
        policy.became_ready(name, 2, 11.0)
    assert Promote(A, B) in kill_gang(policy, B, 1, 20.0)
    assert [policy.is_standby(name) for name in (*A, *B)] == [False, False, True, True]


def test_the_next_supervisor_knows_which_gang_is_on_standby() -> None:
    policy = pair(ready=(*A, *B))
    kill_gang(policy, A, 1, 10.0)
    following = RestartPolicy((ACTIVE, STANDBY))
    following.recall(policy.memory())
    assert [following.is_standby(name) for name in (*A, *B)] == [True, True, False, False]
    following.recall(Memory())  # of a release that did not note it
    assert [following.is_standby(name) for name in (*A, *B)] == [True, True, False, False]


def test_no_promotion_when_both_gangs_lose_what_they_need() -> None:
    policy = pair(ready=(*A, *B), memory=group("cache_directory/0"))
    actions = policy.died("cache_directory/0", 1, 10.0) + kill_gang(policy, (*A, *B), 1, 10.0)
    assert actions[-1] == Start(("cache_directory/0", *A, *B), 0.0)
    assert not any(isinstance(action, Promote) for action in actions)


def test_a_promotion_spends_the_budget_of_the_gang_that_died() -> None:
    policy = pair(ready=(*A, *B))
    before = policy.restarts_left("worker/0.0", 10.0)
    kill_gang(policy, A, 1, 10.0)
    assert policy.restarts_left("worker/0.0", 10.0) == before - 1
    assert policy.restarts_left("worker/0.0b", 10.0) == Budget(3, 60.0, 3, 5).restarts


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((STANDBY, ACTIVE), "expected an active gang that starts before it"),
        ((ACTIVE, STANDBY, group("worker/0.0c", "worker/0.1c", standby_of=ACTIVE.title)), "expected one standby of"),
        ((ACTIVE, STANDBY, group("worker/0.0c", standby_of=STANDBY.title)), "expected an active gang that starts before it"),
        ((ACTIVE, group("worker/0.0b", standby_of=ACTIVE.title)), "expected 2 children"),
    ],
)
def test_a_standby_fits_its_active_gang(groups: tuple[Group, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RestartPolicy(groups)
