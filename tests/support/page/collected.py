"""A collection for the page, with what a test says of it."""

from __future__ import annotations

from typing import Any

from actors.gateway.page.pace import PaceFigures
from actors.gateway.page.requests import RequestPhase, RequestRow, RequestRows
from actors.gateway.page.snapshot import Collected, SupervisorRow
from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, TreeState


def child(name: str, **fields: Any) -> ChildStatus:
    """A child that is ready, in its first life."""
    usual = {"incarnation": 1, "pid": 77, "state": ChildState.READY, "phase": "", "restarts": 0, "uptime_s": 9.0}
    usual |= {"beat_age_s": 0.1, "steps": 0, "busy_s": 0.0, "statistics": {}, "metrics": []}
    return ChildStatus(**{**usual, "name": name, **fields})


def row(tenant: str, number: int, age_s: float = 1.0) -> RequestRow:
    """A request of a tenant."""
    return RequestRow(f"req-{number}", tenant, "m", "chat", RequestPhase.ANSWER, age_s, 3, 4, 1, "gateway/0", ["scheduler/0"])


def collected(children: list[ChildStatus] | None = None, **fields: Any) -> Collected:
    """What a gateway has collected."""
    report = StatusReport(state=TreeState.SERVING, uptime_s=5.0, model="m", url="u", children=children or [])
    usual = {"time_s": 1.0, "version": "1", "gateway": "gateway/0", "report": report, "own_families": [], "has_tenants": True}
    usual |= {"supervisor": SupervisorRow(True, 0.0, 55), "pace": PaceFigures(), "requests": RequestRows([], {})}
    return Collected(**{**usual, **fields})
