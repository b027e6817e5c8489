"""Calls of operators' commands to a running supervisor: status, drain, stop, and the wait for its end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import zmq

import supervisor.children.quick_imports  # noqa: F401  before all that import structlog or numpy
from messages.descriptors.file_lock import is_locked
from messages.errors import TardigradeError
from messages.ids import SUPERVISOR, actor_name, role_of
from messages.lifecycle.cordon import CordonWanted
from messages.lifecycle.tree import (
    ChildState,
    CommandTaken,
    DrainWanted,
    RestartWanted,
    ServeWanted,
    StatusReport,
    StatusWanted,
    StopWanted,
    TreeState,
)
from messages.run_dir import MAX_PORT, run_dir_of
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message
from supervisor.audit.command_audit import audit_file_of, write_command
from supervisor.directories.run_dir_files import supervisor_endpoint
from supervisor.operator.status_table import requests_left

_ASK_EVERY_S = 0.2
_CONNECT_S = 1.0
_REPLACED_S, _POLL_S = 30.0, 0.05  # a supervisor that died is replaced within this time
_IDLE_SLACK_S = 10.0  # for what has to leave a replica at the end of its drain, and for the news of that
_SLACK_S = 1.0  # for the final report of a drain that ends at its deadline


class NoServer(TardigradeError):
    """No server answers in this run directory."""


def ask_status(run_dir: Path, deadline_s: float = 5.0) -> StatusReport:
    """The status of the whole tree. Raises: NoServer."""
    answer = _ask(run_dir, lambda reply_to: StatusWanted(reply_to=reply_to, metrics=False), deadline_s)
    assert isinstance(answer, StatusReport)
    return answer


def ask_drain(run_dir: Path, drain_s: float, then_stop: bool, deadline_s: float = 5.0) -> TreeState:
    """Ask for a drain of at most `drain_s` seconds, followed by a stop if `then_stop`; returns the tree's new state.

    Raises: NoServer.
    """

    def drain(reply_to: str) -> Message:
        return DrainWanted(reply_to=reply_to, deadline_s=drain_s, then_stop=then_stop)

    return _command(run_dir, "drain", drain, deadline_s, deadline_s=drain_s, then_stop=then_stop).state


def ask_stop(run_dir: Path, deadline_s: float = 5.0) -> TreeState:
    """Ask for a stop; returns the tree's new state. Raises: NoServer."""
    return _command(run_dir, "stop", lambda reply_to: StopWanted(reply_to=reply_to), deadline_s).state


def ask_serve(run_dir: Path, deadline_s: float = 5.0) -> str:
    """Ask the server to take new requests again after a drain; returns "", or why it does not.

    Raises: NoServer.
    """
    return _command(run_dir, "serve", lambda reply_to: ServeWanted(reply_to=reply_to), deadline_s).refusal


def ask_restart(run_dir: Path, server: bytes, deadline_s: float = 5.0) -> str:
    """Ask for a rolling restart, after which the server is as `server` says; returns "", or why it is refused.

    Raises: NoServer.
    """
    return _command(run_dir, "restart", lambda reply_to: RestartWanted(reply_to=reply_to, server=server), deadline_s).refusal


def ask_cordon(
    run_dir: Path, replica: int, *, is_cordoned: bool, is_draining: bool = False, drain_s: float = 0.0, deadline_s: float = 5.0
) -> str:
    """Ask to take a replica out of use, or back into use; returns "", or why it is refused. Raises: NoServer."""

    def cordon(reply_to: str) -> Message:
        return CordonWanted(
            reply_to=reply_to, replica=replica, is_cordoned=is_cordoned, is_draining=is_draining, deadline_s=drain_s
        )

    asked = {"replica": replica, "is_draining": is_draining, "deadline_s": drain_s} if is_cordoned else {"replica": replica}
    return _command(run_dir, "cordon" if is_cordoned else "uncordon", cordon, deadline_s, **asked).refusal


def wait_idle(run_dir: Path, replica: int, deadline_s: float) -> bool:
    """Wait until a cordoned replica has nothing to do. Returns False when `deadline_s` passed first. Raises: NoServer."""
    end_s, name = time.monotonic() + deadline_s + _IDLE_SLACK_S, actor_name("scheduler", replica)
    while time.monotonic() < end_s:
        if any(child.name == name and child.cordon.endswith("idle") for child in ask_status(run_dir).children):
            return True
        time.sleep(_ASK_EVERY_S)
    return False


def wait_drained(run_dir: Path, deadline_s: float) -> int | None:
    """Wait until the tree is drained. Returns None, or the number of unfinished requests when `deadline_s` passed first.

    Raises: NoServer, also when the server ends instead.
    """
    end_s = time.monotonic() + deadline_s + _SLACK_S
    while True:
        report = ask_status(run_dir)
        if report.state is TreeState.DRAINED:
            return None
        if report.state is TreeState.STOPPING:
            raise NoServer(f"run_dir: expected the server in {run_dir} to drain, got one that is stopping; its log says why")
        if time.monotonic() > end_s:
            return requests_left(report)
        time.sleep(_ASK_EVERY_S)


def wait_serving(run_dir: Path, deadline_s: float) -> bool:
    """Wait until every gateway takes new requests. Returns False when `deadline_s` passed first. Raises: NoServer."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        children = ask_status(run_dir).children
        if all(child.state is ChildState.READY for child in children if role_of(child.name) == "gateway"):
            return True
        time.sleep(_ASK_EVERY_S)
    return False


def check_running(run_dir: Path) -> None:
    """Return if a server runs in this run directory: its inbox accepts a connection. A supervisor that is being replaced is
    waited for.

    Raises: NoServer.
    """
    end_s = time.monotonic() + _REPLACED_S
    while not accepts(run_dir / "supervisor"):
        if time.monotonic() > end_s or not _is_locked(run_dir / "lock"):
            raise NoServer(f"run_dir: expected a running server in {run_dir}, got none{_other_listener(run_dir)}")
        time.sleep(_POLL_S)


def _other_listener(run_dir: Path) -> str:
    """What an error about the run directory of a port adds, if somebody else serves this port on the loopback interface."""
    digits = re.search(r"\d+$", run_dir.name)
    if digits is None or (port := int(digits[0])) > MAX_PORT or run_dir != run_dir_of(port):
        return ""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S).close()
    except OSError:
        return ""
    return f"; a server of another user, or another program, listens on port {port}"


def accepts(path: Path) -> bool:
    """True while a process accepts connections at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def is_alive(run_dir: Path) -> bool:
    """True while a server, or the parent of a supervisor that is being replaced, holds this run directory."""
    return _is_locked(run_dir / "lock")


def _is_locked(path: Path) -> bool:
    """True while a server, or the parent of a supervisor that died, holds this lock."""
    try:
        return is_locked(path)
    except OSError:
        return False


def _command(
    run_dir: Path, action: str, make: Callable[[str], Message], wait_s: float, **parameters: float | bool
) -> CommandTaken:
    """Give a command and wait `wait_s` for the answer; the audit log gets a line with `action` and `parameters`."""
    audit_file = audit_file_of(run_dir)  # before the command: a server that has ended may have no run directory
    answer = _ask(run_dir, make, wait_s)
    assert isinstance(answer, CommandTaken)
    write_command(audit_file, action, answer.refusal, **parameters)
    return answer


def _ask(run_dir: Path, make: Callable[[str], Message], deadline_s: float) -> Message:
    check_running(run_dir)
    return asyncio.run(_exchange(run_dir, make, deadline_s))


async def _exchange(run_dir: Path, make: Callable[[str], Message], deadline_s: float) -> Message:
    me = actor_name("operator", os.getpid())
    incarnation = time.time_ns() // 1_000_000
    path = run_dir / f"operator-{os.getpid()}.{incarnation}"  # a new name each time: an old link would reconnect to it
    try:
        mailbox = ZmqMailbox(me, incarnation, f"ipc://{path}")
    except zmq.ZMQError as error:
        raise NoServer(f"run_dir: expected room for a socket in {run_dir}, got {error.strerror}") from None
    try:
        mailbox.connect(SUPERVISOR, 0, supervisor_endpoint(run_dir))
        mailbox.send(SUPERVISOR, make(mailbox.endpoint))
        deliveries = await asyncio.wait_for(mailbox.wait_mail(), deadline_s)
        return deliveries[0].message
    except TimeoutError:
        raise NoServer(f"run_dir: expected an answer from the server in {run_dir}, got none in {deadline_s:g} s") from None
    finally:
        await mailbox.close()
        path.unlink(missing_ok=True)
