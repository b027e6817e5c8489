"""The transition tables: complete, without a way back from an order, and enforced."""

from __future__ import annotations

import itertools

import pytest

from messages.lifecycle.tree import ChildState, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.policy.states import (
    CHILD_TRANSITIONS,
    ORDER_TRANSITIONS,
    TreeOrder,
    next_child_state,
    next_order,
    tree_state,
)
from tests.support.supervisor.trees import group


def test_every_state_has_a_row() -> None:
    assert set(CHILD_TRANSITIONS) == set(ChildState)
    assert set(ORDER_TRANSITIONS) == set(TreeOrder)


def test_every_state_is_reached_from_death_and_leads_back_to_it() -> None:
    reached, todo = {ChildState.DEAD}, [ChildState.DEAD]
    while todo:
        todo += (new := CHILD_TRANSITIONS[todo.pop()] - reached)
        reached |= new
    assert reached == set(ChildState)
    assert all(ChildState.DEAD in nexts for state, nexts in CHILD_TRANSITIONS.items() if state is not ChildState.DEAD)


def test_an_order_is_never_taken_back() -> None:
    strength = list(TreeOrder)
    for order, nexts in ORDER_TRANSITIONS.items():
        assert all(strength.index(later) > strength.index(order) for later in nexts)


@pytest.mark.parametrize(("present", "wanted"), [*itertools.product(ChildState, ChildState)])
def test_a_child_takes_only_the_steps_of_the_table(present: ChildState, wanted: ChildState) -> None:
    record = ChildRecord(group("gateway/0").children[0], state=present)
    if wanted in CHILD_TRANSITIONS[present]:
        record.enter(wanted)
        assert record.state is wanted
    else:
        with pytest.raises(AssertionError, match=f"gateway/0: expected no change from {present} to {wanted}"):
            record.enter(wanted)


def test_an_illegal_order_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="order: expected no change from stop to drain"):
        next_order(TreeOrder.STOP, TreeOrder.DRAIN)


def test_a_dead_child_cannot_become_ready() -> None:
    with pytest.raises(AssertionError, match=r"worker/0\.1: expected no change from dead to ready"):
        next_child_state("worker/0.1", ChildState.DEAD, ChildState.READY)


@pytest.mark.parametrize(
    ("order", "is_drained", "all_serving", "has_served", "expected"),
    [
        (TreeOrder.NONE, False, False, False, TreeState.STARTING),
        (TreeOrder.NONE, False, True, True, TreeState.SERVING),
        (TreeOrder.NONE, False, False, True, TreeState.DEGRADED),
        (TreeOrder.DRAIN, False, True, True, TreeState.DRAINING),
        (TreeOrder.DRAIN, True, True, True, TreeState.DRAINED),
        (TreeOrder.DRAIN_AND_STOP, True, True, True, TreeState.DRAINING),
        (TreeOrder.STOP, False, False, False, TreeState.STOPPING),
    ],
)
def test_the_state_of_the_tree(
    order: TreeOrder, is_drained: bool, all_serving: bool, has_served: bool, expected: TreeState
) -> None:
    state = tree_state(order, is_drained=is_drained, all_serving=all_serving, has_served=has_served)
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
    order = TreeOrder.NONE
    state = tree_state(order, is_drained=False, all_serving=all_serving, has_served=has_served, has_retired=True)
    assert state is expected
