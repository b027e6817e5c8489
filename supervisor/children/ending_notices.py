"""Tells a scheduler that a rank of its gang computes nothing more, before the rank's death is proven.

A driver takes 0.1 to 0.2 s to end a process that uses a GPU, and nothing that the process held may be used before that. Where
other replicas can compute, its sequences need not wait so long:

    the supervisor kills a rank, or has ordered it to end ---+
    a rank reports a fault ----------------------------------+--> RankEnding to the scheduler --> gateways move the sequences
    the process of a rank begins to end by itself -----------+

No notice is sent where a standby gang is ready: as soon as the death is proven, it takes over with all that was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from messages.ids import actor_name, replica_of, role_of
from messages.lifecycle.lifecycle import Cause, RankEnding
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.children.exit_cause import cause_of
from supervisor.children.process import ExitStatus

OnEnding = Callable[[ChildRecord, int], None]


class EndingNotices:
    """`send(record, message)` sends a message to a child. `take_memory_kill()` says whether the kernel sent the last SIGKILL,
    for want of memory. `note(record)` writes down what the next supervisor has to know of it."""

    def __init__(
        self,
        records: Mapping[str, ChildRecord],
        send: Callable[[ChildRecord, Message], None],
        take_memory_kill: Callable[[], bool],
        note: Callable[[ChildRecord], None],
    ) -> None:
        self._records, self._send, self._take_memory_kill, self._note = records, send, take_memory_kill, note
        self._on_ending: OnEnding = lambda record, incarnation: None
        self._has_successor: Callable[[str], bool] = lambda name: False

    def connect(self, on_ending: OnEnding, has_successor: Callable[[str], bool]) -> None:
        """`on_ending(record, incarnation)` is called when a process has begun to end by itself. `has_successor(name)` says
        whether a standby gang is ready to take over from the gang of this rank."""
        self._on_ending, self._has_successor = on_ending, has_successor

    def watch_threads(self, record: ChildRecord) -> None:
        """This rank can serve, so it has all its threads. Does nothing for other children."""
        if role_of(record.name) == "worker" and record.process is not None:
            record.process.watch_threads()

    def process_ends(self, record: ChildRecord, incarnation: int, exit_status: ExitStatus | None) -> None:
        """The process of an incarnation has begun to end. `exit_status`: how it will have ended; None: not known yet."""
        if exit_status is not None:
            cause = cause_of(exit_status, record.killed_for, self._take_memory_kill)
            if cause == "out_of_memory":
                record.killed_for = cause  # the kernel's count explains one death, and this one is asked about again
            self.tell(record, cause)
        self._on_ending(record, incarnation)

    def tell_ordered(self, record: ChildRecord, cause: Cause) -> None:
        """Note that this rank will be ended, then tell its scheduler.

        If this supervisor dies in between, the next one kills the rank.
        """
        if role_of(record.name) == "worker" and record.is_alive:
            record.killed_for = record.killed_for or cause
            self._note(record)
            self.tell(record, record.killed_for)

    def tell(self, record: ChildRecord, cause: Cause) -> None:
        """Tell the scheduler of a rank that it ends for this cause. Does nothing for other children, and for unknown ranks."""
        if role_of(record.name) != "worker" or not record.is_alive or not record.is_announced:
            return
        scheduler = self._records.get(actor_name("scheduler", replica_of(record.name)))
        if scheduler is not None and scheduler.is_reachable and not self._has_successor(record.name):
            self._send(scheduler, RankEnding(name=record.name, incarnation=record.incarnation, cause=cause))
