"""A real server with encrypted ZeroMQ over TCP: streams go on when their gateway is killed. And its audit log."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from messages.access.audit_log import AuditRecord
from messages.client import Client
from messages.errors import Unavailable
from supervisor.__main__ import main
from supervisor.operator.calls import ask_drain, ask_serve, wait_drained, wait_serving
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
N_TOKENS = 200


def free_ports() -> int:
    """The first of two ports that follow each other and are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = first.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except (OSError, OverflowError):
                continue


def keys(server: RealServer, *arguments: str) -> str:
    """The output of `supervisor keys`."""
    done = CliRunner().invoke(main, ["keys", *arguments, "--state-dir", str(server.run_dir)])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_streams_over_curve_go_on_after_both_gateways_were_killed() -> None:
    port = free_ports()
    endpoints = [f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}"]
    flags = ("--zeromq-port", str(port), "--zeromq-curve", "--api-keys", "--gateways", "2")
    with real_server("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", *flags) as server:
        api_key, server_key = keys(server, "add", "--tenant", "me"), keys(server, "zeromq")
        with Client(endpoints, api_key=api_key, server_key=server_key) as client:
            whole = client.generate("hello", max_tokens=N_TOKENS, temperature=0, request="whole").tokens
            stream, got = client.stream("hello", max_tokens=N_TOKENS, temperature=0, request="cut"), list[int]()
            for index in range(2):
                got += next(stream).ids
                incarnation = server.kill(f"gateway/{index}")
                server.wait_new_incarnation(f"gateway/{index}", incarnation)
            for piece in stream:
                got += piece.ids
            assert got == whole
        stranger = "a" * 40
        with Client(endpoints, api_key=api_key, server_key=stranger) as client, pytest.raises(Unavailable, match="server_key"):
            client.models(deadline_s=1.0)
        _commands_have_lines(server)


def _commands_have_lines(server: RealServer) -> None:
    ask_drain(server.run_dir, DEADLINE_S, False)
    assert wait_drained(server.run_dir, DEADLINE_S) is None
    assert ask_serve(server.run_dir) == ""
    assert wait_serving(server.run_dir, DEADLINE_S)
    with Client(server.zeromq) as operator:
        operator.reset_cache()
    records = lines_of(server.run_dir / "audit.log")
    assert [(one.door, one.action, one.result) for one in records] == [
        ("command", "keys add", "done"),
        ("command", "drain", "done"),
        ("command", "serve", "done"),
        ("zeromq", "CacheResetWanted", "done"),
    ]
    assert {one.role for one in records} == {"operator"}
    assert all(one.user for one in records[:3])


def lines_of(path: Path) -> list[AuditRecord]:
    return [msgspec.json.decode(line, type=AuditRecord) for line in path.read_bytes().splitlines()]
