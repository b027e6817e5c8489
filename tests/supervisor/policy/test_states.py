"""The transition tables: complete, without a way back from a command, and enforced."""

from __future__ import annotations

import itertools

import pytest

from messages.lifecycle.tree import ChildState, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.policy.states import (
    CHILD_TRANSITIONS,
    COMMAND_TRANSITIONS,
    TreeCommand,
    next_child_state,
    next_command,
    tree_state,
)
from tests.support.supervisor.trees import group


def test_every_state_has_a_row() -> None:
    assert set(CHILD_TRANSITIONS) == set(ChildState)
    assert set(COMMAND_TRANSITIONS) == set(TreeCommand)


def test_every_state_is_reached_from_death_and_leads_back_to_it() -> None:
    reached, todo = {ChildState.DEAD}, [ChildState.DEAD]
    while todo:
        todo += (new := CHILD_TRANSITIONS[todo.pop()] - reached)
        reached |= new
    assert reached == set(ChildState)
    assert all(ChildState.DEAD in nexts for state, nexts in CHILD_TRANSITIONS.items() if state is not ChildState.DEAD)


def test_only_a_drain_is_taken_back() -> None:
    strength = list(TreeCommand)
    weaker = [
        (command, later)
        for command, nexts in COMMAND_TRANSITIONS.items()
        for later in nexts
        if strength.index(later) <= strength.index(command)
    ]
    assert weaker == [(TreeCommand.DRAIN, TreeCommand.NONE)]


@pytest.mark.parametrize(("present", "wanted"), [*itertools.product(ChildState, ChildState)])
def test_a_child_takes_only_the_steps_of_the_table(present: ChildState, wanted: ChildState) -> None:
    record = ChildRecord(group("gateway/0").children[0], state=present)
    if wanted in CHILD_TRANSITIONS[present]:
        record.enter(wanted)
        assert record.state is wanted
    else:
        with pytest.raises(AssertionError, match=f"gateway/0: expected no change from {present} to {wanted}"):
            record.enter(wanted)


def test_an_illegal_command_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="command: expected no change from stop to drain"):
        next_command(TreeCommand.STOP, TreeCommand.DRAIN)


def test_a_dead_child_cannot_become_ready() -> None:
    with pytest.raises(AssertionError, match=r"worker/0\.1: expected no change from dead to ready"):
        next_child_state("worker/0.1", ChildState.DEAD, ChildState.READY)


@pytest.mark.parametrize(
    ("command", "is_drained", "all_serving", "has_served", "expected"),
    [
        (TreeCommand.NONE, False, False, False, TreeState.STARTING),
        (TreeCommand.NONE, False, True, True, TreeState.SERVING),
        (TreeCommand.NONE, False, False, True, TreeState.DEGRADED),
        (TreeCommand.DRAIN, False, True, True, TreeState.DRAINING),
        (TreeCommand.DRAIN, True, True, True, TreeState.DRAINED),
        (TreeCommand.DRAIN_AND_STOP, True, True, True, TreeState.DRAINING),
        (TreeCommand.STOP, False, False, False, TreeState.STOPPING),
    ],
)
def test_the_state_of_the_tree(
    command: TreeCommand, is_drained: bool, all_serving: bool, has_served: bool, expected: TreeState
) -> None:
    state = tree_state(command, is_drained=is_drained, all_serving=all_serving, has_served=has_served)
    assert state is expected


@pytest.mark.parametrize(
    ("all_serving", "has_served", "expected"),
    [
        (False, False, TreeState.STARTING),
        (True, False, TreeState.DEGRADED),  # the others serve: the start is over
        (True, True, TreeState.DEGRADED),
        (False, True, TreeState.DEGRADED),
    ],
)
def test_the_state_of_a_tree_with_a_retired_child(all_serving: bool, has_served: bool, expected: TreeState) -> None:
    command = TreeCommand.NONE
    state = tree_state(command, is_drained=False, all_serving=all_serving, has_served=has_served, has_retired=True)
    assert state is expected
