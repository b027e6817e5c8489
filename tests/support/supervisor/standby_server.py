"""What tests of a real server with a standby ask and do. One replica of one rank."""

from __future__ import annotations

import signal

from messages.client import Client
from messages.lifecycle.tree import StatusReport
from tests.support.real_server import RealServer

SEATS = ("worker/0.0", "worker/0.0b")
PROMPT = list(range(1, 200))


def gang_in_charge(server: RealServer) -> str:
    """The name of the rank that is active; the other one is the standby, or starts."""
    report = server._wait(lambda r: any(is_active(r, name) for name in SEATS))
    return next(name for name in SEATS if is_active(report, name))


def is_active(report: StatusReport, name: str) -> bool:
    return any(child.name == name and child.state == "ready" and child.phase != "standby" for child in report.children)


def wait_standby(server: RealServer) -> None:
    """Until a standby gang is ready."""
    server._wait(lambda r: any(child.phase == "standby" and child.state == "ready" for child in r.children))


def has_adopted(report: StatusReport) -> bool:
    """True if the scheduler has begun an epoch with pages of known content."""
    return any(child.statistics.get("pages_adopted", 0.0) > 0 for child in report.children if child.name == "scheduler/0")


def hit(server: RealServer, victim: str, how: signal.Signals) -> tuple[str, int]:
    """Kill "active", "standby" or an actor by its name; returns the name and the incarnation that was hit."""
    name = victim
    if victim in ("active", "standby"):
        active = gang_in_charge(server)
        name = active if victim == "active" else next(seat for seat in SEATS if seat != active)
    return name, server.kill(name, how)


def n_cached(server: RealServer) -> int:
    """Tokens of the prompt that were found in pages."""
    with Client(server.zeromq) as client:
        return client.generate(PROMPT, max_tokens=4, temperature=0.0).n_cached


def wait_statistic(server: RealServer, child: str, name: str, value: float) -> None:
    """Until a child's number is at least this."""
    server._wait(lambda r: any(c.name == child and c.statistics.get(name, 0.0) >= value for c in r.children))
