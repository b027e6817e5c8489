"""Draws the table of SECURITY.md: which calls need which role, from the endpoints and the messages of clients."""

from __future__ import annotations

from typing import get_args

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.zeromq.keys import FOR_ADMINS, FOR_METRICS
from messages import public


def roles_table() -> str:
    """One row for each role: the calls of each door that need it."""
    kinds = get_args(public.ClientMessage)
    keyed = [kind for kind in kinds if issubclass(kind, public.KeyedMessage)]
    rows = (
        ("none", [one for one in ENDPOINTS if one.is_open], [kind for kind in kinds if kind not in keyed]),
        ("metrics", [one for one in ENDPOINTS if one.shows_metrics], list(FOR_METRICS)),
        ("user", [one for one in ENDPOINTS if not (one.is_open or one.needs_admin)], [k for k in keyed if k not in FOR_ADMINS]),
        ("admin", [one for one in ENDPOINTS if one.needs_admin], list(FOR_ADMINS)),
    )
    lines = ["| role | HTTP | ZeroMQ |", "|---|---|---|"]
    for role, endpoints, messages in rows:
        http = ", ".join(f"`{one.method} {one.path}`" for one in endpoints)
        lines.append(f"| {role} | {http} | {', '.join(f'`{kind.__name__}`' for kind in messages)} |")
    return "\n".join(lines)
