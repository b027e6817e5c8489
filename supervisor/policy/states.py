"""The state machines of the supervisor as data: which state may follow which, for one child and for the command to the tree.

The states of a child and of the tree are named in `messages/lifecycle/tree.py`, because status reports carry them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from messages.lifecycle.tree import ChildState, TreeState


class TreeCommand(Enum):
    """The strongest command that the tree has been given. A drain can be taken back; others only grow stronger."""

    NONE = "none"
    DRAIN = "drain"  # refuse new requests, finish the accepted ones, keep every process
    DRAIN_AND_STOP = "drain and stop"  # the same, then STOP
    STOP = "stop"  # stop every child, last started first


_C, _O = ChildState, TreeCommand

CHILD_TRANSITIONS: Mapping[ChildState, frozenset[ChildState]] = {
    _C.DEAD: frozenset({_C.STARTING, _C.ADOPTED}),
    _C.ADOPTED: frozenset({_C.WELCOMED, _C.STOPPING, _C.ENDING, _C.DEAD}),
    _C.STARTING: frozenset({_C.WELCOMED, _C.ENDING, _C.DEAD}),
    _C.WELCOMED: frozenset({_C.READY, _C.ENDING, _C.DEAD}),
    _C.READY: frozenset({_C.DRAINING, _C.STOPPING, _C.ENDING, _C.DEAD}),
    _C.DRAINING: frozenset({_C.DRAINED, _C.STOPPING, _C.ENDING, _C.DEAD}),
    _C.DRAINED: frozenset({_C.STOPPING, _C.ENDING, _C.DEAD}),
    _C.STOPPING: frozenset({_C.ENDING, _C.DEAD}),
    _C.ENDING: frozenset({_C.DEAD}),
}
COMMAND_TRANSITIONS: Mapping[TreeCommand, frozenset[TreeCommand]] = {
    _O.NONE: frozenset({_O.DRAIN, _O.DRAIN_AND_STOP, _O.STOP}),
    _O.DRAIN: frozenset({_O.NONE, _O.DRAIN_AND_STOP, _O.STOP}),
    _O.DRAIN_AND_STOP: frozenset({_O.STOP}),
    _O.STOP: frozenset(),
}
STARTING_STATES = frozenset({_C.STARTING, _C.WELCOMED})
SERVING_STATES = frozenset({_C.READY, _C.DRAINING, _C.DRAINED})  # peers may send to a child in one of these
LINKED_STATES = SERVING_STATES | {_C.ADOPTED, _C.WELCOMED, _C.STOPPING}  # the supervisor has a link to its inbox


def next_child_state(name: str, present: ChildState, wanted: ChildState) -> ChildState:
    """`wanted`, if it may follow `present`.

    Raises: AssertionError naming the child otherwise: a bug of the supervisor.
    """
    assert wanted in CHILD_TRANSITIONS[present], f"{name}: expected no change from {present} to {wanted}"
    return wanted


def next_command(present: TreeCommand, wanted: TreeCommand) -> TreeCommand:
    """`wanted`, if it may follow `present`.

    Raises: AssertionError otherwise: a bug of the supervisor.
    """
    assert wanted in COMMAND_TRANSITIONS[present], f"command: expected no change from {present.value} to {wanted.value}"
    return wanted


def tree_state(
    command: TreeCommand, *, is_drained: bool, all_serving: bool, has_served: bool, has_retired: bool = False
) -> TreeState:
    """The state of the tree as operators see it.

    `is_drained`: a drain was asked for and no gateway has anything left to finish. `all_serving`: every child that is not
    retired can serve now. `has_served`: that was so at least once. `has_retired`: some child is retired.
    """
    match command:
        case TreeCommand.STOP:
            return TreeState.STOPPING
        case TreeCommand.DRAIN_AND_STOP:
            return TreeState.DRAINING
        case TreeCommand.DRAIN:
            return TreeState.DRAINED if is_drained else TreeState.DRAINING
        case TreeCommand.NONE if all_serving and not has_retired:
            return TreeState.SERVING
        case TreeCommand.NONE:
            return TreeState.DEGRADED if has_served or all_serving else TreeState.STARTING
