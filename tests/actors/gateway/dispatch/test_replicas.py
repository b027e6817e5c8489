"""Which replicas get attempts, and which ones are left, by what their schedulers have told."""

from __future__ import annotations

import pytest

from actors.gateway.dispatch.failover import Failover
from actors.gateway.dispatch.replicas import Replicas, of_model
from actors.gateway.dispatch.routing import AttemptBook
from messages.generation.replica_state import ReplicaCondition
from messages.ids import model_of
from messages.lifecycle.cordon import Cordon
from tests.support.dispatch.dispatcher_bench import PeersPost

UP, DOWN, SICK = ReplicaCondition.UP, ReplicaCondition.DOWN, ReplicaCondition.SICK
BOTH = ["scheduler/0", "scheduler/1"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, BOTH),
        (UP, None, BOTH),  # one that has told nothing yet counts as up
        (DOWN, None, ["scheduler/1"]),
        (DOWN, UP, ["scheduler/1"]),
        (SICK, UP, ["scheduler/1"]),
        (SICK, DOWN, ["scheduler/1"]),
        (DOWN, DOWN, BOTH),
        (SICK, SICK, BOTH),
    ],
)
def test_attempts_go_to_replicas_in_the_best_condition(
    first: ReplicaCondition | None, second: ReplicaCondition | None, expected: list[str]
) -> None:
    replicas = Replicas()
    for name, condition in zip(BOTH, (first, second), strict=True):
        if condition is not None:
            replicas.note(name, condition)
    assert replicas.candidates(BOTH) == expected


class LastingPeers(PeersPost):
    """Its list of peers is the same object until they change."""

    def living(self, role: str) -> list[str]:
        return self.names


def test_the_candidates_are_looked_for_again_only_after_a_change() -> None:
    post = LastingPeers(*BOTH, "scheduler/1000")
    failover = Failover(1.0, post, AttemptBook(1), lambda sequence: None)
    replicas = failover.replicas

    def known() -> list[str]:
        found = failover.candidates()
        assert failover.candidates() is found, "nothing has changed"
        assert found == replicas.candidates(of_model(post.names, 0)), "as without memory"
        return found

    assert known() == BOTH
    assert failover.candidates(model_of("scheduler/1000")) == ["scheduler/1000"]
    replicas.note("scheduler/0", DOWN)
    assert known() == ["scheduler/1"]
    replicas.remove("scheduler/0")
    assert known() == BOTH
    replicas.set_cordons([Cordon(replica=1)])
    assert known() == ["scheduler/0"]
    replicas.set_cordons([])
    post.names = ["scheduler/1"]
    assert known() == ["scheduler/1"]


def test_without_a_scheduler_there_is_no_candidate() -> None:
    assert Replicas().candidates([]) == []


def test_a_replica_that_is_down_is_left_after_its_grace_if_it_has_not_changed_since() -> None:
    replicas = Replicas()
    first = replicas.note("scheduler/0", DOWN)
    assert replicas.to_leave(BOTH) == []
    assert replicas.end_grace("scheduler/0", first)
    assert replicas.to_leave(BOTH) == ["scheduler/0"]
    replicas.note("scheduler/0", UP)
    assert replicas.to_leave(BOTH) == []
    replicas.note("scheduler/0", DOWN)
    assert not replicas.end_grace("scheduler/0", first)
    assert replicas.to_leave(BOTH) == []


def test_a_sick_replica_is_left_at_once() -> None:
    replicas = Replicas()
    replicas.note("scheduler/0", SICK)
    assert replicas.to_leave(BOTH) == ["scheduler/0"]


def test_nothing_is_left_while_no_other_replica_is_up() -> None:
    replicas = Replicas()
    replicas.note("scheduler/0", SICK)
    replicas.note("scheduler/1", DOWN)
    assert replicas.to_leave(BOTH) == []
    assert replicas.to_leave(["scheduler/0"]) == []


def test_the_same_condition_again_is_no_change() -> None:
    replicas = Replicas()
    assert replicas.note("scheduler/0", DOWN)
    assert not replicas.note("scheduler/0", DOWN)


def test_a_scheduler_that_is_new_has_told_nothing() -> None:
    replicas = Replicas()
    replicas.note("scheduler/0", SICK)
    replicas.remove("scheduler/0")
    assert replicas.condition("scheduler/0") is UP
