"""What a supervisor takes over from the last one of this server: the children, and what the policies knew of them."""

from __future__ import annotations

import time

from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.directories.run_dir import RunDir
from supervisor.directories.saved_state import SavedStateFile
from supervisor.operator.tree_commands import TreeCommands
from supervisor.policy.liveness import Liveness
from supervisor.policy.restart_policy import RestartPolicy


class Takeover:
    """Brings the records of children and the policies to the state in which the last supervisor left them."""

    def __init__(
        self,
        run_dir: RunDir,
        children: ChildManager,
        policy: RestartPolicy,
        liveness: Liveness,
        commands: TreeCommands,
        saved: SavedStateFile,
    ) -> None:
        self._run_dir, self._children, self._policy = run_dir, children, policy
        self._liveness, self._commands, self._saved = liveness, commands, saved

    def adopt(self) -> list[ChildRecord]:
        """Adopt the children of the last supervisor. Returns their records; none in a new server."""
        adopted = self._children.adopt()
        self._commands.has_served = self._run_dir.has_served
        self._policy.recall(self._saved.left.memory)
        if adopted:
            self._inform(adopted)
        return adopted

    def _inform(self, adopted: list[ChildRecord]) -> None:
        """Tell the policies which incarnations live, and which of them serve."""
        now_s = time.monotonic()
        self._policy.resume(self._commands.has_served)
        for record in adopted:
            self._policy.started(record.name, record.incarnation)
            self._liveness.spawned(record.name, record.spec.deadlines, now_s, is_adopted=True)
            if record.is_announced:  # it beats already
                self._liveness.became_ready(record.name, now_s)
                self._policy.became_ready(record.name, record.incarnation, now_s)
