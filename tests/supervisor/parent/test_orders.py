"""A signal that a supervisor has handled is repeated to the next one only if that does no harm."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from supervisor.parent.orders import Orders
from tests.support.real_server import WITH_SPARES, RealServer, real_server


def test_a_hangup_is_forgotten_once_the_supervisor_has_shown_that_it_handles_signals() -> None:
    orders = Orders()
    for number in (signal.SIGTERM, signal.SIGHUP):
        orders.note(number)
    orders.heard()  # it may have said so before the signal came
    assert orders.numbers == [signal.SIGTERM, signal.SIGHUP]
    assert orders.sent() == [signal.SIGTERM, signal.SIGHUP]
    orders.heard()
    assert orders.numbers == [signal.SIGTERM, signal.SIGHUP], "another supervisor"
    orders.heard()
    assert orders.numbers == [signal.SIGTERM]


def test_the_last_two_signals_count() -> None:
    orders = Orders([signal.SIGINT])
    for number in (signal.SIGINT, signal.SIGTERM):
        orders.note(number)
    assert orders.numbers == [signal.SIGINT, signal.SIGTERM]


def n_signals(server: RealServer) -> int:
    return server.log().count("signal received")


@pytest.mark.timeout(600)
def test_the_next_supervisor_does_not_reload_again(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[gateway]\nretention_s = 600.0\n")
    flags = ("--config", str(file), "--model", "hash-chain", "--set", "log_level=info", *WITH_SPARES)
    with real_server(*flags) as server:
        before = server.child("gateway/0").incarnation
        file.write_text("[gateway]\nretention_s = 601.0\n")
        os.kill(server.parent_pid, signal.SIGHUP)
        server.wait_new_incarnation("gateway/0", before)
        report = server.wait_for(lambda report: all(child.has_spare for child in report.children))
        assert n_signals(server) == 1
        file.write_text("[gateway]\nretention_s = 602.0\n")  # nobody asks for this one yet
        old = server.kill_supervisor()
        after = server.wait_supervisor(old)
        assert n_signals(server) == 1
        assert [child.incarnation for child in after.children] == [child.incarnation for child in report.children]
