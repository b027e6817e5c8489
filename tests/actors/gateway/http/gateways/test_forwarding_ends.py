"""A forwarded call whose owner never answers has an end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.http.answers.hangup import EXTENSION, Hangup
from actors.gateway.http.gateways import forwarding
from actors.gateway.http.gateways.forwarded_call import ForwardedCall
from actors.gateway.http.gateways.forwarding import Forwarded
from tests.support.waiting import DEADLINE_S


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_an_owner_that_never_answers_leaves_no_call_without_an_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_resumed: bool
) -> None:
    """A new call is refused. A resumed connection from which nothing is read, as after a pipelined request, does not notice
    that it was cut, so it is closed here: else uvicorn misses the answer."""
    monkeypatch.setattr(forwarding, "_OWNER_AWAY_S", 0.0)
    cuts, statuses, watched = list[str](), list[int](), Hangup()

    def close() -> None:
        cuts.append("abort")
        watched.notify()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    watched.abort = close
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "extensions": {EXTENSION: watched}}
    cut = (lambda: cuts.append("cut")) if is_resumed else None
    call = ForwardedCall("r", "/v1/completions", 0)

    async def receive() -> Any:
        await asyncio.Event().wait()

    await Forwarded(str(tmp_path / "nobody"), call, DEADLINE_S, cut)(scope, receive, send)
    assert (statuses, cuts) == (([], ["cut", "abort"]) if is_resumed else ([503], []))
