"""Tells gateways the condition of a scheduler's replica, which of their sequences are suspect there, and its load."""

from __future__ import annotations

import time

from actors.actor import Actor
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.load.load_reports import LoadReports
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.settings import SchedulerSettings
from messages.generation.replica_state import ReplicaCondition, ReplicaState


class ConditionReports:
    """The reports of one scheduler. `actor` sends them; `gang` has the condition; all but `actor` have the load."""

    def __init__(
        self, actor: Actor, gang: GangView, queues: SequenceQueues, metrics: SchedulerMetrics, settings: SchedulerSettings
    ) -> None:
        self._actor, self._gang = actor, gang
        self.loads = LoadReports(actor, queues, gang, metrics, settings.degraded_wait_s)
        self._n_changes_told = 0  # of the gang's condition
        self._condition, self._since_s = ReplicaCondition.DOWN, time.monotonic()  # as told
        self._has_successor = True

    def send_changes(self) -> None:
        """Tell every gateway in which condition this replica is, if that has changed since the last call, and its load."""
        self.loads.send_changes()
        if self._gang.n_changes == self._n_changes_told:
            return
        self._n_changes_told = self._gang.n_changes
        condition = self._gang.condition
        self._has_successor = self._has_successor or condition is not ReplicaCondition.DOWN
        if condition is not self._condition:
            self._condition, self._since_s = condition, time.monotonic()
            log = self._actor.log.error if condition is ReplicaCondition.SICK else self._actor.log.info
            log("replica", condition=condition)
        for gateway in self._actor.child.names_of("gateway"):
            self.tell(gateway)

    def no_standby_follows(self) -> None:
        """The gang ends, and no standby takes over: until a new gang is ready, this replica is down for long."""
        self._has_successor = False

    def tell(self, gateway: str) -> None:
        """Tell one gateway what has been told to the others."""
        suspects = self._gang.probation.suspects_of(gateway)
        since_s, has_successor = time.monotonic() - self._since_s, self._has_successor
        state = ReplicaState(condition=self._condition, since_s=since_s, suspects=suspects, has_successor=has_successor)
        self._actor.send(gateway, state)

    def greet(self, gateway: str) -> None:
        """A gateway appears: tell it what has been told to the others."""
        self.tell(gateway)
        self.loads.tell(gateway)
