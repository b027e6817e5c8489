"""Replicas that an operator has taken out of use. The supervisor owns this fact and writes it down; gateways obey it.

    supervisor cordon scheduler/1            new sequences go to other replicas; what waits or runs there stays
    supervisor cordon scheduler/1 --drain    what waits there goes to other replicas at once, and what runs there after a while
    supervisor uncordon scheduler/1

A gateway learns it with its Welcome and with each change, so restarts of gateways, schedulers and supervisors change nothing.
"""

from __future__ import annotations

import time

import structlog

from messages.ids import REPLICAS_OF_A_MODEL, actor_name, replica_of, role_of
from messages.lifecycle.cordon import Cordon, Cordons, CordonWanted
from messages.lifecycle.tree import ChildState
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.directories.saved_state import SavedStateFile

_OF_A_REPLICA = ("scheduler", "worker")
_WORK = ("running", "waiting")  # figures of a scheduler
_TOLD_S = 1.5  # from the last change on, a scheduler's figures know of it: gateways and two heartbeats


class CordonKeeper:
    """The cordons of one server. `saved`: where they are written down."""

    def __init__(self, children: ChildManager, saved: SavedStateFile) -> None:
        self._children, self._saved = children, saved
        self._changed_s = time.monotonic()
        children.cordons = saved.left.cordons

    def carry_out(self, wanted: CordonWanted) -> str:
        """Cordon a replica, or take that back. Returns "", or why this is refused."""
        replicas = {replica_of(name) for name in self._children.record_by_name if role_of(name) == "scheduler"}
        if wanted.replica not in replicas:
            return f"replica: expected one of {', '.join(map(str, sorted(replicas)))}, got {wanted.replica}"
        others = [one for one in self._saved.now.cordons if one.replica != wanted.replica and one.replica in replicas]
        if not wanted.is_cordoned:
            self._set(others)
            return ""
        model = wanted.replica // REPLICAS_OF_A_MODEL
        in_use = {one for one in replicas if one // REPLICAS_OF_A_MODEL == model} - {one.replica for one in others}
        if in_use <= {wanted.replica}:
            hint = "; uncordon one first" if any(one.replica // REPLICAS_OF_A_MODEL == model for one in others) else ""
            return f"replica: expected one beside which another replica of its model is in use, got {wanted.replica}{hint}"
        self._changed_s = now_s = time.monotonic()
        end_s = now_s + wanted.deadline_s if wanted.is_draining else 0.0
        self._set([*others, Cordon(replica=wanted.replica, is_draining=wanted.is_draining, end_s=end_s)])
        return ""

    def text(self, name: str) -> str:
        """What `supervisor status` says of a child whose replica is cordoned; "" if it is not."""
        if role_of(name) not in _OF_A_REPLICA or not self._children.cordons:
            return ""
        cordon = next((one for one in self._children.cordons if one.replica == replica_of(name)), None)
        if cordon is None:
            return ""
        if self._is_idle(cordon):
            return "cordoned, idle"
        return "cordoned, draining" if cordon.is_draining else "cordoned"

    def _is_idle(self, cordon: Cordon) -> bool:
        record = self._children.record_by_name.get(actor_name("scheduler", cordon.replica))
        if record is None or not _has_news(record, self._changed_s):
            return False
        statistics = record.last.statistics if record.last is not None else {}
        return not any(statistics.get(name, 0.0) for name in _WORK)

    def _set(self, cordons: list[Cordon]) -> None:
        structlog.get_logger().warning("replicas cordoned", replicas=sorted(one.replica for one in cordons))
        self._saved.note_cordons(cordons)
        self._children.cordons = cordons
        for record in self._children.records:  # an adopted one has them from its Welcome
            if role_of(record.name) == "gateway" and record.is_reachable and record.state is not ChildState.ADOPTED:
                self._children.send(record, Cordons(cordons=cordons))


def _has_news(record: ChildRecord, since_s: float) -> bool:
    """True if its newest heartbeat tells of a time at which gateways had heard of a change at `since_s`."""
    return record.is_serving and record.heard_s >= since_s + _TOLD_S
