"""Looks at all children ten times a second: kills late ones, starts those that the machine refused, repeats refused writes.

Twice a second files and spares are looked at, and the service manager is told that this supervisor is alive. The kernel says
when a child is stopped from outside, and when it goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from messages.lifecycle.lifecycle import Cause
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server
from supervisor.operator.notify import notify
from supervisor.parent.kernel import new_stops
from supervisor.parent.link import ParentLink
from supervisor.policy.liveness import Liveness, OverdueChild
from supervisor.policy.spawn_retries import SpawnRetries

CHECK_EVERY_S = 0.1
_FILES_EVERY_S = 0.5  # 16 calls of the system: ten times a second they were a quarter of an idle supervisor's time


class ChildWatch:
    """`start(names)` starts children that the machine has refused before. `kill(record, reason, cause)` kills a child.

    In each turn the parent is told that this supervisor is alive.
    """

    def __init__(
        self,
        children: ChildManager,
        liveness: Liveness,
        spawn_retries: SpawnRetries,
        saved: SavedStateFile,
        link: ParentLink,
        server: Server,
        start: Callable[[tuple[str, ...]], None],
        kill: Callable[[ChildRecord, str, Cause], None],
    ) -> None:
        self._children, self._liveness, self._spawn_retries = children, liveness, spawn_retries
        self._saved, self._link, self._state_dir = saved, link, server.state_dir
        self._start, self._kill = start, kill

    async def run(self) -> None:
        """Look until the task is cancelled."""
        files_at_s = 0.0
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            now_s = time.monotonic()
            self._look_at_states(now_s)
            for late in self._liveness.overdue(now_s):
                if late.is_to_continue:
                    self._continue(self._children.record_by_name[late.name])
                else:
                    self._kill_silent(late)
            for names in self._spawn_retries.due(now_s):
                self._start(names)
            if now_s >= files_at_s:
                files_at_s = now_s + _FILES_EVERY_S
                self._look_at_files()
                self._children.spares.look(now_s)
                if self._link.has_parent:
                    self._children.reap_strays()
                notify("WATCHDOG=1")
            self._link.beat()

    def _look_at_states(self, now_s: float) -> None:
        """Note which children are stopped from outside."""
        changed = new_stops()
        for record in self._children.records:
            if record.process is not None and record.is_starting:
                self._liveness.seen(record.name, record.process.is_suspended(), now_s)
            elif record.process is not None and record.process.pid in changed:
                self._liveness.seen(record.name, changed[record.process.pid], now_s)

    def _look_at_files(self) -> None:
        self._children.retry_writes()
        self._saved.retry()
        if self._state_dir is not None:
            self._state_dir.make_again()

    def holder_died(self) -> None:
        """A child has died that held memory or connections for others, and only those others have them now. So children that
        were stopped from outside are continued: they must give what they have to the next holder."""
        for record in self._children.records:
            if record.process is not None and record.is_alive and record.process.is_suspended():
                self._continue(record)

    def _continue(self, record: ChildRecord) -> None:
        if record.process is not None:
            structlog.get_logger().warning("child is stopped from outside: it is told to continue", child=record.name)
            record.process.resume()

    def _kill_silent(self, late: OverdueChild) -> None:
        """Kill a child that is late, frozen or stuck. If it is a rank that waits for another one, kill that one instead."""
        awaited = self._children.awaited_by(self._children.record_by_name[late.name])
        self._kill(awaited.record, late.reason + awaited.why, awaited.cause)
