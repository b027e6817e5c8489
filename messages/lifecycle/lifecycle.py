"""Messages between every child and the supervisor: start, progress, peers and shutdown.

    starting --Hello--> welcomed --Ready--> ready --Drain--> draining --Stop--> stopping
       |  hello_s          |  ready_s         |  frozen_s       (Stop comes after  |  stop_s
       |                   |                  |                 drain_s at most)   |
       +-- when a deadline passes: a kill, then a proven death, then a restart unless the server stops --+

`Ready`, `Progress` and the exit of the process are three separate signals: a child may exist and not serve yet, and it may
send heartbeats and make no progress.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from messages.lifecycle.cordon import MAX_CORDONS, Cordon
from messages.wire.message import Count, LongText, Message, Part, ShortText


class Peer(Part, frozen=True):
    """The address of one living actor."""

    name: ShortText
    incarnation: Count
    endpoint: ShortText


class MetricSample(Part, frozen=True):
    """One sample of a metric family: suffix of the family's name, labels, value."""

    suffix: ShortText
    labels: dict[str, str]
    value: float


class MetricFamily(Part, frozen=True):
    """A Prometheus metric family as one actor sees it."""

    name: ShortText
    documentation: LongText
    type: ShortText
    samples: Annotated[list[MetricSample], msgspec.Meta(max_length=4096)]


class Reached(StrEnum):
    """How far a child has come by its own account, while its process lives."""

    WELCOMED = "welcomed"  # it loads
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"


class Hello(Message, frozen=True):
    """A child's first message to a supervisor: its process exists. Sent after its inbox is bound, and as the answer to Adopt.

    `state` is what it has reached. `details` are those of its Ready, empty before.
    """

    pid: Count
    endpoint: ShortText
    state: Reached = Reached.WELCOMED
    details: dict[str, str] = {}


class Adopt(Message, frozen=True):
    """A new supervisor has taken over the children of one that died. The child reports to it from now on."""

    incarnation: Count  # of the new supervisor
    pid: Count


class Loading(Message, frozen=True):
    """How far a child's start has come, for the progress display: `fraction` (0 to 1) of this phase is done."""

    phase: ShortText
    fraction: float


class Ready(Message, frozen=True):
    """The child can serve. The details (a listening address, a page count) are shown to operators."""

    details: dict[str, str]


class PeerUp(Message, frozen=True):
    """An actor became ready. `peer` has its incarnation and its endpoint."""

    peer: Peer


Cause = Literal[
    "killed",  # from outside, by a person or a drill: SIGKILL, another signal that no computation raises, or SIGSTOP
    "out_of_memory",  # SIGKILL from the kernel, which had no memory left
    "crashed",  # a signal of computations: SIGSEGV, SIGABRT, ...
    "faulted",  # an unhandled error: exit status FAULT, usually after a Fault, or an exit status that no process of ours has
    "hung",  # killed by its supervisor because it was late, frozen or stuck
    "gang",  # killed by its supervisor because a child died that belongs to its group or to a group that its group needs
    "ended",  # stopped as asked, or its settings cannot be used
]


def leaves_memory_intact(cause: Cause) -> bool:
    """True if the memory that a dead worker shared still holds what its finished steps have written. After a crash, a fault or
    a hang the device may have damaged it."""
    return cause in ("killed", "out_of_memory", "gang", "ended")


class PeerDown(Message, frozen=True):
    """An actor's process is proven dead, and why it died. No more messages of this incarnation will come."""

    name: ShortText
    incarnation: Count
    cause: Cause = "ended"


class Welcome(Message, frozen=True):
    """The supervisor's answer to Hello: the peers that are ready now, and the last death of each child that died before.

    A child may have missed such a death: an earlier supervisor has died with the message.
    """

    peers: Annotated[list[Peer], msgspec.Meta(max_length=1024)]
    deaths: Annotated[list[PeerDown], msgspec.Meta(max_length=1024)] = []
    cordons: Annotated[list[Cordon], msgspec.Meta(max_length=MAX_CORDONS)] = []  # replicas that get no new sequences


class RankEnding(Message, frozen=True):
    """A rank computes nothing more, and no standby gang is ready. A PeerDown follows when its death is proven; until then its
    memory is in use."""

    name: ShortText
    incarnation: Count
    cause: Cause


class Progress(Message, frozen=True):
    """Sent regularly by a child's event loop while it is ready.

    `steps` counts work done. `busy_s` says for how long the present step has been running (0 when idle): the event loop may run
    while a step in another thread is stuck. `limit_s` is how long that step may run, learnt from such steps (0: not known). The
    statistics are for `supervisor status`. Every fourth message carries the metric families for /metrics; without families the
    last ones stay valid.
    """

    steps: Count
    busy_s: float
    statistics: dict[str, float]
    metrics: Annotated[list[MetricFamily], msgspec.Meta(max_length=512)]
    limit_s: float = 0.0


class Drain(Message, frozen=True):
    """Accept no new requests and finish the others; a Stop follows after `deadline_s` seconds in any case."""

    deadline_s: float


class Drained(Message, frozen=True):
    """The child has no request left to finish."""


class Stop(Message, frozen=True):
    """End now: close sockets, send Stopped, exit with status 0.

    `hand_over`: the next incarnation follows at once, so leave to it what it can go on with, such as client connections.
    """

    hand_over: bool = False


class Stopped(Message, frozen=True):
    """The last message of a child that was told to stop."""


class Fault(Message, frozen=True):
    """The last message of a child that ends because of an error: what it was doing, and the error."""

    doing: ShortText
    reason: LongText  # one line
    traceback: LongText = ""
    is_final: bool = False  # the error came before the child was ready, and would come again at the next start
