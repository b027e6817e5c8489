"""What a supervisor does when its parent is killed or frozen: it ends its event loop, and its process becomes the next parent.

    parent (dead)   supervisor ── children        then        parent (was the supervisor) ── next supervisor
                                                                 └──── children, which go on serving

The process executes the parent's program in place, as the parent does for a rolling restart. It keeps its process id, its
children, the locks and the listening socket; its first supervisor adopts the children. Afterwards nothing is special: exit
statuses of children reach their parent, and this parent may be killed as well.

The first supervisor is forked by the fork server before the event loop ends, and has the program already: until it has adopted
the children, nobody replaces one that dies. Without a fork server that is ready, the parent starts one, which takes longer.

Signals that ask for a stop are blocked meanwhile: the kernel gives them to the next parent. If the supervisor dies before the
program is executed, it is as if both had died at once: the children end after `supervisor.orphan_s` seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import structlog

from messages.log_file.log_tee import flush_log_file
from messages.outcomes import ExitCode
from supervisor.children.entrypoint import leave
from supervisor.directories.saved_state import SavedStateFile
from supervisor.operator.notify import notify
from supervisor.operator.tree_commands import TreeCommands
from supervisor.parent.execution import STOP_SIGNALS, ParentState, execute_parent
from supervisor.parent.link import ParentLink, Successor

_SETTLE_S = 0.05  # in which the event loop handles signals that have come before they were blocked
_MOST_LOOKS = 20  # whether a child is being replaced, one each `_SETTLE_S`
_RETRY_S = 0.05
_REPEATED = 2  # interrupts that a parent remembers


class Succession:
    """Watches the parent from its construction on. `is_whole`: no child is being replaced now; that comes first, for a second
    at most, because the next supervisor is ready later. `fork`: makes the next supervisor; None if that is not possible now."""

    def __init__(
        self,
        link: ParentLink,
        commands: TreeCommands,
        saved: SavedStateFile,
        is_whole: Callable[[], bool] = lambda: True,
        fork: Callable[[], Successor | None] = lambda: None,
    ) -> None:
        self._commands, self._saved, self._is_whole, self._fork = commands, saved, is_whole, fork
        self._link = link
        link.on_parent_death, link.on_parent_frozen = self._parent_died, self._parent_froze

    def _parent_froze(self) -> None:
        """Its death follows, and is noticed as any other."""
        pid = self._link.parent_pid
        structlog.get_logger().warning("the parent does not answer: killed, to be replaced", pid=pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _parent_died(self) -> None:
        self._saved.note_parent_death()
        notify(f"MAINPID={os.getpid()}")
        log = structlog.get_logger()
        if self._commands.is_stopping:
            log.warning("the parent was killed: this supervisor ends the server without one")
            return
        log.warning("the parent was killed: this process becomes the parent, and a new supervisor adopts its children")
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        asyncio.get_running_loop().call_later(_SETTLE_S, self._hand_over, _MOST_LOOKS)

    def _hand_over(self, looks_left: int) -> None:
        if self._is_whole() or not looks_left:
            self._link.successor = self._fork()
            self._commands.hand_over()
        else:
            asyncio.get_running_loop().call_later(_SETTLE_S, self._hand_over, looks_left - 1)


def leave_to_next(exit_status: int, link: ParentLink, saved: SavedStateFile) -> NoReturn:
    """End this supervisor so that the parent starts the next one; if the parent is dead, become the parent."""
    if not link.has_lost_parent:
        leave(exit_status)
    flush_log_file()
    is_rolling = saved.now.roll.is_open  # then the program on disk may be another one
    successor = link.successor if exit_status == ExitCode.HAND_OVER and not is_rolling else None
    interrupts = min(saved.now.command.n_interrupts, _REPEATED)
    state = ParentState(
        kept={f"{name} {kept.value}": kept.fd for name, kept in link.kept.items()},
        exits=link.exits.code_by_pid,
        orders=[signal.SIGINT] * interrupts,
        failures_s=[] if exit_status == ExitCode.HAND_OVER else [time.monotonic()],
        next_supervisor=None if successor is None else (successor.pid, successor.end.fileno()),
    )
    while True:
        try:
            execute_parent(state)
        except OSError as error:  # no memory or no descriptor is left: the children go on meanwhile
            structlog.get_logger().error("cannot become the parent now, will try again", reason=str(error))
        time.sleep(_RETRY_S)
