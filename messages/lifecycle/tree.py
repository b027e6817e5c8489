"""Messages about the whole tree of processes: its status, and the commands of operators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from messages.lifecycle.lifecycle import MetricFamily
from messages.wire.message import Count, LongText, Message, Part, ShortText


class StatusWanted(Message, frozen=True):
    """Ask the supervisor for the state of the whole tree (`supervisor status`, /v1/metrics, /metrics).

    `reply_to` is the endpoint of the sender: the supervisor has no link to an operator's command.
    """

    reply_to: ShortText
    metrics: bool


class ChildState(StrEnum):
    """The state of one child. `supervisor/policy/states.py` says which state may follow which."""

    DEAD = "dead"  # no process, or its death is proven
    STARTING = "starting"  # the process exists
    ADOPTED = "adopted"  # it was a child of an earlier supervisor and has not said Hello to this one yet
    WELCOMED = "welcomed"  # it sent Hello and is loading
    READY = "ready"  # it can serve
    DRAINING = "draining"  # it finishes what it has and takes nothing new
    DRAINED = "drained"  # it has nothing left to finish
    STOPPING = "stopping"  # it was asked to end
    ENDING = "ending"  # it was killed, and its death is not proven yet


class TreeState(StrEnum):
    """What the whole tree is doing."""

    STARTING = "starting"  # some child has never been ready yet
    SERVING = "serving"  # every child is ready
    DEGRADED = "degraded"  # some child is missing; it is being replaced, or retired and tried again from time to time
    DRAINING = "draining"  # no new requests; the accepted ones are being finished
    DRAINED = "drained"  # nothing is left to finish
    STOPPING = "stopping"  # children are being stopped, in reverse start order


class ChildStatus(Part, frozen=True):
    """One child as the supervisor sees it."""

    name: ShortText
    incarnation: Count
    pid: Count
    state: ChildState
    phase: ShortText
    restarts: Count
    uptime_s: float
    beat_age_s: float
    steps: Count
    busy_s: float
    statistics: dict[str, float]
    metrics: Annotated[list[MetricFamily], msgspec.Meta(max_length=512)]
    memory_bytes: Count = 0  # resident memory now
    restarts_left: Count = 0  # deaths before the supervisor gives up, if all came at once
    has_spare: bool = False  # a spare process with everything imported waits to become its next incarnation
    last_exit: ShortText = ""  # how its last incarnation ended; if its supervisor killed it, also why
    last_exit_age_s: float = 0.0
    retired: ShortText = ""  # why the server goes on without it for now; "": it does not
    cordon: ShortText = ""  # that its replica gets no new sequences, and whether it has any; "": it gets them


class RestartProgress(Part, frozen=True):
    """How far the newest rolling restart has come, in groups of children; "supervisor" is the supervisor itself."""

    number: Count  # of this rolling restart, in this server
    done: list[str]
    todo: list[str]  # the one that is being replaced first; empty when it is over
    failure: LongText = ""  # why it has stopped; what is in `todo` was left as it was


class StatusReport(Message, frozen=True):
    """The tree, child by child in start order."""

    state: TreeState
    uptime_s: float
    model: ShortText
    url: ShortText
    children: Annotated[list[ChildStatus], msgspec.Meta(max_length=1024)]
    layout: ShortText = ""  # replicas, ranks, devices and dtype, in words
    restart: RestartProgress | None = None  # None: there was none
    supervisor_pid: int = 0
    parent_pid: int = 0  # of the process that starts the next supervisor; 0: none, or it has just died
    parent_deaths: int = 0  # each time the supervisor has taken its place
    keeps_spares: bool = True  # every child has a spare, except while one starts or stands still


class DrainWanted(Message, frozen=True):
    """An operator asks the whole tree to drain, then to stop when `then_stop` is set."""

    reply_to: ShortText
    deadline_s: float
    then_stop: bool


class StopWanted(Message, frozen=True):
    """An operator asks the whole tree to drain and stop."""

    reply_to: ShortText


class ServeWanted(Message, frozen=True):
    """An operator takes a drain back: the server takes new requests again."""

    reply_to: ShortText


class RestartWanted(Message, frozen=True):
    """An operator asks for a rolling restart: every process is replaced, one group after the other.

    `server` is what the server consists of afterwards, as JSON of `supervisor/directories/server.py`.
    """

    reply_to: ShortText
    server: Annotated[bytes, msgspec.Meta(max_length=1_048_576)]


class CommandTaken(Message, frozen=True):
    """The supervisor has taken an operator's command, or refuses it. `state` is the tree's after it."""

    state: TreeState
    refusal: LongText = ""  # why the command is not carried out; "": it is


class OrderTaken(CommandTaken, frozen=True):
    """`CommandTaken` under the name that the last release sends. The next release does not know it any more."""
