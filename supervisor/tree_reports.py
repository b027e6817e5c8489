"""The state of the whole tree as operators see it: the report, and the announcement of each change."""

from __future__ import annotations

import os
import time

import structlog

from messages.lifecycle.tree import ChildStatus, StatusReport, TreeState
from messages.wire.message import MAX_SHORT_CHARACTERS
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.cordons.keeper import CordonKeeper
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server
from supervisor.operator.display import Display
from supervisor.operator.notify import notify
from supervisor.operator.tree_commands import TreeCommands
from supervisor.parent.link import ParentLink
from supervisor.policy.restart_policy import RestartPolicy
from supervisor.policy.states import tree_state


class TreeReports:
    """Reads the records of children, the policy and the present command. `notice` must be called after each change of them."""

    def __init__(
        self,
        server: Server,
        children: ChildManager,
        policy: RestartPolicy,
        commands: TreeCommands,
        display: Display,
        saved: SavedStateFile,
        link: ParentLink,
        cordons: CordonKeeper,
    ) -> None:
        self._server, self._children, self._policy = server, children, policy
        self._commands, self._display, self._saved, self._link = commands, display, saved, link
        self._cordons = cordons
        self._began_s = time.monotonic()  # this supervisor
        saved.note_beginning(self._began_s)
        self._shown, self._was_complete = TreeState.STARTING, False  # as last noticed
        self._log = structlog.get_logger()

    @property
    def state(self) -> TreeState:
        """What the whole tree is doing now."""
        return tree_state(
            self._commands.present,
            is_drained=self._commands.is_drained,
            all_serving=self.is_complete,
            has_served=self._commands.has_served,
            has_retired=any(self._policy.retired(record.name) for record in self._children.records),
        )

    @property
    def is_complete(self) -> bool:
        """True if every child can serve, except standby gangs and retired groups."""
        policy = self._policy
        names = [r.name for r in self._children.records if not (policy.retired(r.name) or policy.is_standby(r.name))]
        return all(self._children.record_by_name[name].is_serving for name in names)

    def report(self, with_metrics: bool) -> StatusReport:
        """The state of the whole tree. `with_metrics`: include the metric families of the children."""
        now_s = time.monotonic()
        return StatusReport(
            state=self.state,
            uptime_s=now_s - self._saved.now.began_s,
            model=self._server.model_name,
            url=self._server.url,
            layout=self._server.layout[:MAX_SHORT_CHARACTERS],
            restart=self._saved.now.roll.progress(),
            children=[self._child(record, now_s, with_metrics) for record in self._children.records],
            supervisor_pid=os.getpid(),
            parent_pid=self._link.parent_pid,
            parent_deaths=self._saved.now.n_parent_deaths,
            keeps_spares=self._children.spares.is_wanted,
        )

    def _child(self, record: ChildRecord, now_s: float, with_metrics: bool) -> ChildStatus:
        has_spare = record.name in self._children.spares.names
        restarts_left = self._policy.restarts_left(record.name, now_s)
        retired, cordon = self._policy.retired(record.name), self._cordons.text(record.name)
        return record.status(now_s, with_metrics, restarts_left, has_spare, retired, cordon)

    def notice(self) -> None:
        """Report a new state of the tree to the log, the service manager and the terminal."""
        state, is_complete = self.state, self.is_complete
        is_new, is_other = state != self._shown, is_complete != self._was_complete
        self._shown, self._was_complete = state, is_complete
        if is_new or is_other:
            self._make_spares(is_complete and state in (TreeState.SERVING, TreeState.DEGRADED))
        if not is_new:
            return
        after_s = time.monotonic() - self._began_s
        self._log.info("state", state=state, after_s=round(after_s, 3))
        notify(f"STATUS={state}")
        if state in (TreeState.SERVING, TreeState.DEGRADED) and not self._commands.has_served:
            self._commands.has_served = True
            self._server.run_dir.note_served()
            self._display.serving(after_s)
            notify("READY=1")

    def _make_spares(self, is_wanted: bool) -> None:
        """Make the missing spares; none while a child restarts and needs the cores. First those of gateways,
        schedulers and ranks: streams stand still without them."""
        spares = self._children.spares
        self._link.wants_next = is_wanted and spares.is_wanted
        if is_wanted:
            self._children.make_spares()
        else:
            spares.cancel()

    def retired(self, title: str, reason: str, pause_s: float) -> None:
        """Raise an alarm: the server goes on without this group, which is started again after `pause_s` seconds."""
        self._log.error(
            "group not restarted for now: the server continues without it", group=title, reason=reason, next_start_s=pause_s
        )
        self.notice()
        notify(f"STATUS={self.state}: {title} is retired, next start in {pause_s:g} s ({reason})")
