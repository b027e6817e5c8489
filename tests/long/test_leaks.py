"""Requests of all kinds, then kills of every actor: no process that lives on holds more than before. `ops.bench leak-watch` is
the same for hours. And it says so when one does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.__main__ import main
from tests.support import planted_leak
from tests.support.load_tools import run_load_tool, server_arguments
from tests.support.real_server import WITHOUT_SPARES

pytestmark = [pytest.mark.long, pytest.mark.timeout(800)]


def test_nothing_grows_over_requests_and_restarts() -> None:
    sizes = ("--requests", "6000", "--warm", "2000", "--restarts", "24", "--server-arg=--vault")
    result = run_load_tool("leak-watch", *sizes)
    assert result["growths"] == []
    assert sum(result["restarts"].values()) == 24, "each of eight actors, and the supervisor among them"
    kept = ("zmq", "repeated")  # those of ZeroMQ clients and under a key survive every death
    assert not [cut for cut in result["cut_by_deaths"] if cut.startswith(kept)], result["cut_by_deaths"]
    assert min(result["kinds"].values()) > 230, "every kind of request"


def test_a_gateway_that_leaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    site = str(Path(planted_leak.__file__).parent / "site")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((site, os.environ.get("PYTHONPATH", ""))))
    sizes = ("--requests", "2500", "--warm", "300", "--restarts", "0", "--settle-s", "5", *server_arguments(*WITHOUT_SPARES))
    watched = CliRunner().invoke(main, ["leak-watch", *sizes])
    assert watched.exit_code == 1, watched.output
    grown = {(one["name"].partition(" ")[0], one["what"]) for one in json.loads(watched.stdout)["growths"]}
    assert grown == {("gateway/0", "memory_bytes"), ("gateway/0", "descriptors")}
