"""Requests of all kinds, then kills of every actor: no process that lives on holds more than before. `ops.bench leak-watch` is
the same for hours."""

from __future__ import annotations

import pytest

from tests.support.load_tools import run_load_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(800)]


def test_nothing_grows_over_requests_and_restarts() -> None:
    sizes = ("--requests", "15000", "--warm", "4000", "--restarts", "48", "--server-arg=--vault")
    result = run_load_tool("leak-watch", *sizes)
    assert result["growths"] == []
    assert sum(result["restarts"].values()) == 48, "each of eight actors, and the supervisor among them"
    kept = ("zmq", "repeated")  # those of ZeroMQ clients and under a key survive every death
    assert not [cut for cut in result["cut_by_deaths"] if cut.startswith(kept)], result["cut_by_deaths"]
    assert min(result["kinds"].values()) > 500, "every kind of request"
