"""The operator's side of the supervisor: ask for the status, order a drain or a stop, wait for the end."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import filelock

from messages.errors import TardigradeError
from messages.ids import actor_name, role_of
from messages.lifecycle import DrainWanted, OrderTaken, StatusReport, StatusWanted, StopWanted, TreeState
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message
from supervisor.children.run_dir import supervisor_endpoint

_SUPERVISOR = "supervisor/0"
_ASK_EVERY_S = 0.2
_SLACK_S = 1.0  # for the last words of a drain that ends at its deadline


class NoServer(TardigradeError):
    """Nobody answers in this run directory."""


def ask_status(run_dir: Path, deadline_s: float = 5.0) -> StatusReport:
    """The state of the tree. Raises: NoServer."""
    answer = _ask(run_dir, lambda reply_to: StatusWanted(reply_to=reply_to, metrics=False), deadline_s)
    assert isinstance(answer, StatusReport)
    return answer


def order_drain(run_dir: Path, drain_s: float, then_stop: bool, deadline_s: float = 5.0) -> TreeState:
    """Let the tree drain; returns its new state. Raises: NoServer."""
    return _order(run_dir, lambda reply_to: DrainWanted(reply_to=reply_to, deadline_s=drain_s, then_stop=then_stop), deadline_s)


def order_stop(run_dir: Path, deadline_s: float = 5.0) -> TreeState:
    """Let the tree stop; returns its new state. Raises: NoServer."""
    return _order(run_dir, lambda reply_to: StopWanted(reply_to=reply_to), deadline_s)


def wait_drained(run_dir: Path, deadline_s: float) -> int | None:
    """Ask until the tree is drained. None when it is; the number of requests that are left when the deadline came first.

    Raises: NoServer, also when the server ends instead.
    """
    end_s = time.monotonic() + deadline_s + _SLACK_S
    while True:
        report = ask_status(run_dir)
        if report.state is TreeState.DRAINED:
            return None
        if report.state is TreeState.STOPPING:
            raise NoServer(f"run_dir: expected the server in {run_dir} to drain, got one that ends; its log says why")
        if time.monotonic() > end_s:
            gateways = (child for child in report.children if role_of(child.name) == "gateway")
            return sum(int(gateway.statistics.get("active", 0)) for gateway in gateways)
        time.sleep(_ASK_EVERY_S)


def check_running(run_dir: Path) -> None:
    """Is there a server in this run directory? Its inbox says so: nobody listens on the socket of a dead process.

    Raises: NoServer.
    """
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            knock.connect(str(run_dir / "supervisor"))
        except OSError:
            raise NoServer(f"run_dir: expected a running server in {run_dir}, got none") from None


def wait_gone(run_dir: Path, deadline_s: float) -> bool:
    """Wait until the server has given its run directory back; False when the deadline came first."""
    lock = filelock.FileLock(run_dir / "lock", mode=0o600)
    try:
        lock.acquire(timeout=deadline_s, poll_interval=0.05)
    except filelock.Timeout:
        return False
    lock.release()
    return True


def _order(run_dir: Path, make: Callable[[str], Message], deadline_s: float) -> TreeState:
    answer = _ask(run_dir, make, deadline_s)
    assert isinstance(answer, OrderTaken)
    return answer.state


def _ask(run_dir: Path, make: Callable[[str], Message], deadline_s: float) -> Message:
    check_running(run_dir)
    return asyncio.run(_exchange(run_dir, make, deadline_s))


async def _exchange(run_dir: Path, make: Callable[[str], Message], deadline_s: float) -> Message:
    me = actor_name("operator", os.getpid())
    incarnation = time.time_ns() // 1_000_000
    path = run_dir / f"operator-{os.getpid()}.{incarnation}"  # never twice: an old link would come back to it
    mailbox = ZmqMailbox(me, incarnation, f"ipc://{path}")
    try:
        mailbox.connect(_SUPERVISOR, 0, supervisor_endpoint(run_dir))
        mailbox.send(_SUPERVISOR, make(mailbox.endpoint))
        deliveries = await asyncio.wait_for(mailbox.wait_mail(), deadline_s)
        return deliveries[0].message
    except TimeoutError:
        raise NoServer(f"run_dir: expected an answer from the server in {run_dir}, got none in {deadline_s:g} s") from None
    finally:
        await mailbox.close()
        path.unlink(missing_ok=True)
