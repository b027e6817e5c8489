"""Groups that fail again and again: retired while something else does their work, and when the server ends after all."""

from __future__ import annotations

import pytest

from messages.outcomes import ExitCode
from supervisor.policy.actions import Action, GiveUp, Kill, Retire, Start
from supervisor.policy.child_spec import Budget, Group, Strategy, Unit
from supervisor.policy.restart_policy import RestartPolicy
from tests.support.supervisor.trees import group, replica

LEAN = Budget(restarts=100, window_s=60.0, start_attempts=2, restart_attempts=2)


class Incarnations:
    """A policy, and the incarnations of its children."""

    def __init__(self, *groups: Group, is_ready: bool = True) -> None:
        self.policy, self.now_s = RestartPolicy(groups), 1000.0
        self._incarnation = {child.name: 0 for g in groups for child in g.children}
        for name in self._incarnation:
            self.start(name, is_ready=is_ready)

    def start(self, name: str, *, is_ready: bool) -> None:
        self._incarnation[name] += 1
        self.policy.started(name, self._incarnation[name])
        if is_ready:
            self.policy.became_ready(name, self._incarnation[name], self.now_s)

    def die(self, name: str, cannot_succeed: str = "") -> list[Action]:
        return self.policy.died(name, self._incarnation[name], self.now_s, cannot_succeed)

    def fail_until_refused(self, name: str) -> list[Action]:
        """Die before each Ready until the policy does something else than to start again; returns that."""
        for _ in range(100):
            actions = self.die(name)
            if not isinstance(actions[0], Start):
                return actions
            self.now_s += actions[0].delay_s
            self.start(name, is_ready=False)
        raise AssertionError("a start after each death")


def test_one_dead_device_is_one_replica_less() -> None:
    incarnations = Incarnations(*replica(0, budget=LEAN), *replica(1, budget=LEAN), group("gateway/0", unit=Unit("gateway", 0)))
    retire, start = incarnations.fail_until_refused("worker/1.0")
    reason = "worker/1.0: died 2 times in a row before it was ready"
    assert retire == Retire("worker/1.0", reason, 5.0)
    assert start == Start(("worker/1.0",), 5.0)
    assert incarnations.policy.retired("worker/1.0") == reason
    assert not incarnations.policy.retired("worker/0.0")


def test_a_retired_group_is_tried_again_with_growing_pauses() -> None:
    incarnations = Incarnations(*replica(0), *replica(1, budget=LEAN))
    actions = incarnations.fail_until_refused("worker/1.0")
    pauses = []
    for _ in range(9):
        assert isinstance(actions[0], Retire)
        pauses.append(actions[0].pause_s)
        incarnations.now_s += actions[0].pause_s
        incarnations.start("worker/1.0", is_ready=False)
        actions = incarnations.die("worker/1.0")
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


def test_a_retired_group_that_becomes_ready_is_a_full_member_again() -> None:
    incarnations = Incarnations(*replica(0), *replica(1, budget=LEAN))
    incarnations.fail_until_refused("worker/1.0")
    incarnations.start("worker/1.0", is_ready=True)
    assert not incarnations.policy.retired("worker/1.0")
    incarnations.now_s += 60.0
    assert incarnations.die("worker/1.0") == [Start(("worker/1.0",), 0.0)]
    incarnations.start("worker/1.0", is_ready=False)
    [retire, _] = incarnations.fail_until_refused("worker/1.0")
    assert isinstance(retire, Retire)
    assert retire.pause_s == 5.0  # it was steady in between


def test_the_server_ends_when_the_last_replica_fails() -> None:
    incarnations = Incarnations(*replica(0, budget=LEAN), *replica(1, budget=LEAN))
    incarnations.fail_until_refused("worker/1.0")
    [action] = incarnations.fail_until_refused("worker/0.0")
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.BUDGET_SPENT


def test_a_replica_without_its_scheduler_serves_nobody() -> None:
    broken = group("scheduler/1", budget=LEAN, unit=Unit("replica", 1))
    incarnations = Incarnations(*replica(0, budget=LEAN), replica(1)[0], broken)
    assert isinstance(incarnations.fail_until_refused("scheduler/1")[0], Retire)
    assert isinstance(incarnations.fail_until_refused("worker/0.0")[0], GiveUp)


def test_a_gang_is_retired_as_a_whole() -> None:
    gang = group("worker/1.0", "worker/1.1", strategy=Strategy.ONE_FOR_ALL, budget=LEAN, unit=Unit("replica", 1))
    incarnations = Incarnations(*replica(0), gang)
    actions, last = incarnations.die("worker/1.0"), incarnations.die("worker/1.1")
    for _ in range(2):
        incarnations.start("worker/1.0", is_ready=False)
        incarnations.start("worker/1.1", is_ready=False)
        actions = incarnations.die("worker/1.0")
        last = incarnations.die("worker/1.1")
    assert [type(action) for action in actions] == [Retire, Kill]
    assert last == [Start(("worker/1.0", "worker/1.1"), 5.0)]


def test_a_group_that_only_helps_never_ends_the_server() -> None:
    incarnations = Incarnations(group("speculation/0", budget=LEAN, is_optional=True), *replica(0))
    assert isinstance(incarnations.fail_until_refused("speculation/0")[0], Retire)


def test_the_only_gateway_has_patience_with_its_disk_and_short_pauses() -> None:
    incarnations = Incarnations(group("gateway/0", budget=LEAN, unit=Unit("gateway", 0), patience_s=100.0))
    actions, began_s, pauses = incarnations.fail_until_refused("gateway/0"), incarnations.now_s, []
    while isinstance(actions[0], Retire):
        pauses.append(actions[0].pause_s)
        incarnations.now_s += actions[0].pause_s
        incarnations.start("gateway/0", is_ready=False)
        actions = incarnations.die("gateway/0")
    assert set(pauses) == {5.0, 10.0}
    assert incarnations.now_s - began_s >= 100.0
    assert isinstance(actions[0], GiveUp)


def test_a_first_start_that_fails_everywhere_is_a_failed_start() -> None:
    incarnations = Incarnations(*replica(0, budget=LEAN), *replica(1, budget=LEAN), is_ready=False)
    assert isinstance(incarnations.fail_until_refused("worker/1.0")[0], Retire)
    [action] = incarnations.fail_until_refused("worker/0.0")
    assert isinstance(action, GiveUp)
    assert action.exit_status == ExitCode.NOT_STARTED


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_start_that_cannot_succeed_ends_the_server_unless_another_replica_serves(is_ready: bool) -> None:
    incarnations = Incarnations(*replica(0), *replica(1), is_ready=False)
    if is_ready:
        for name in ("worker/0.0", "scheduler/0"):
            incarnations.policy.became_ready(name, 1, incarnations.now_s)
    actions = incarnations.die("worker/1.0", "no such device")
    assert isinstance(actions[0], Retire if is_ready else GiveUp)


def test_a_standby_that_fails_is_retired_and_so_is_an_active_gang_that_has_one() -> None:
    active = group("worker/0.0", budget=LEAN, unit=Unit("replica", 0))
    standby = group("worker/0.0.s", budget=LEAN, unit=Unit("replica", 0), standby_of="worker/0.0")
    incarnations = Incarnations(active, standby)
    assert isinstance(incarnations.fail_until_refused("worker/0.0.s")[0], Retire)
    assert isinstance(incarnations.fail_until_refused("worker/0.0")[0], GiveUp)
