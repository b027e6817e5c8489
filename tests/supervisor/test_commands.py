"""The command line over a whole real server of the hash-chain model: what an operator does, and what may die meanwhile."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from messages.errors import ConfigError
from messages.run_dir import run_dir_of
from ops.bench.leaks.held_resources import descendants_of
from supervisor.config.server_config import load_config
from supervisor.directories.register import start_ticks_of
from supervisor.directories.run_dir import RunDir
from supervisor.directories.run_dir_files import read_pid
from supervisor.operator.dry_run import check_start
from tests.support.real_server import kill_pair
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, call, serving


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A serving server, for a test that ends it."""
    with serving(tmp_path_factory.mktemp("run") / "d") as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A serving server, for tests after which it serves."""
    with serving(tmp_path_factory.mktemp("run") / "d") as running:
        yield running


def test_it_serves_is_looked_at_and_stops(server: RunningServer) -> None:
    report = server.status()
    assert report["state"] == "serving"
    assert {child["state"] for child in report["children"]} == {"ready"}
    assert server.complete("hello")
    assert "gateway/0" in call("status", "--run-dir", str(server.run_dir)).stdout
    tree = [server.process.pid, *descendants_of(server.process.pid)]
    assert len(tree) >= 8, "the parent, the supervisor and six actors"
    assert call("stop", "--run-dir", str(server.run_dir)).stdout == "stopped\n"
    assert [pid for pid in tree if start_ticks_of(pid) is not None] == []
    assert server.process.wait(DEADLINE_S) == 0
    assert read_pid(server.run_dir) is None


def test_the_printed_commands_run(shared: RunningServer) -> None:
    shared.wait_said("or Ctrl-C here")
    lines = [line.strip() for line in shared.said.splitlines()]
    python = next(line for line in lines if "from messages.client import Client" in line)
    status = next(line for line in lines if "show its processes" in line).partition("    show")[0]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    ran = [
        subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
        for line in (python, status)
    ]
    assert len(json.loads(ran[0])) == 16
    assert ran[1].startswith("serving  hash-chain")


def test_with_a_json_log_standard_error_is_json_lines(tmp_path: Path) -> None:
    running = RunningServer(tmp_path / "r", "--log-format", "json")
    try:
        running.wait_said('"event": "serving"')
    finally:
        running.end(signal.SIGTERM)
        assert running.process.stderr is not None
        running.said += running.process.stderr.read()
        running.process.stderr.close()
    events = [json.loads(line)["event"] for line in running.said.splitlines()]
    assert {"placement", "serving", "server stopped"} <= set(events)


def test_any_child_may_die_and_the_answer_stays_the_same(shared: RunningServer) -> None:
    truth = shared.complete("the same prompt")
    for child in shared.status()["children"]:
        os.kill(child["pid"], signal.SIGKILL)
        assert shared.complete("the same prompt") == truth
    assert {child["restarts"] for child in shared.status()["children"]} == {1}


def test_the_next_start_clears_what_a_killed_parent_has_left(server: RunningServer) -> None:
    pidfds = [os.pidfd_open(pid) for pid in (server.supervisor_pid, *(child["pid"] for child in server.status()["children"]))]
    kill_pair(server.process.pid, server.supervisor_pid)
    assert server.process.wait(DEADLINE_S) == -signal.SIGKILL
    successor = RunningServer(server.run_dir)
    try:
        successor.wait_said("Tardigrade serves hash-chain")
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], 0.0)[0] == [pidfd]
            os.close(pidfd)
        assert {child["incarnation"] for child in successor.status()["children"]} == {2}
        assert successor.end(signal.SIGTERM) == 0
    finally:
        successor.kill_all()
        assert successor.process.stderr is not None
        successor.process.stderr.close()


def test_a_start_that_is_interrupted_ends_by_the_same_signal(tmp_path: Path) -> None:
    """Before the first child exists there is nothing to stop in order."""
    running = RunningServer(tmp_path / "r", "--set", "worker.hash_chain_step_s=0.01")
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(DEADLINE_S) in (-signal.SIGTERM, 0)
    assert running.process.stderr is not None
    running.process.stderr.close()


def test_drain_refuses_new_requests_and_keeps_the_server(server: RunningServer) -> None:
    assert call("drain", "--run-dir", str(server.run_dir)).stdout.startswith("drained: no request is in progress, and new ones")
    assert server.status()["state"] == "drained"
    with pytest.raises(urllib.error.HTTPError, match="503"):
        server.complete("too late")
    assert call("drain", "--undo", "--run-dir", str(server.run_dir)).stdout == "new requests are taken again\n"
    server.complete("in time")
    assert server.end(signal.SIGINT) == 0


def test_a_second_server_is_refused_with_a_reason(shared: RunningServer) -> None:
    second = call("start", "--model", "hash-chain", "--run-dir", str(shared.run_dir), "--port", "0")
    assert second.returncode == 2
    assert "run_dir: expected no other server" in second.stderr


def test_a_port_that_is_served_is_named(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of a server of this user, not its run directory, which the operator has not chosen."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    held = RunDir.acquire(run_dir_of(8123))
    try:
        second = call("start", "--model", "hash-chain", "--port", "8123")
    finally:
        held.release()
    assert second.returncode == 2
    assert (
        "port: expected a port that no other server of this user serves, got 8123"
        f" (served by pid {os.getpid()}; supervisor status --port 8123 shows it)\n"
    ) in second.stderr


def test_two_servers_do_not_share_their_journals(server: RunningServer, tmp_path: Path) -> None:
    """The state directory of the first is its run directory."""
    flags = ("start", "--model", "hash-chain", "--port", "0", "--run-dir", str(tmp_path / "r"))
    second = call(*flags, "--state-dir", str(server.run_dir))
    assert second.returncode == 2
    assert f"state_dir: expected no other server on the journals in {server.run_dir}" in second.stderr
    assert f"(pid {server.supervisor_pid})" in second.stderr
    assert server.complete("the first goes on")


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = call("start", "--model", "hash-chain", "--port", str(port), "--run-dir", str(tmp_path / "r"))
    assert refused.returncode == 2
    said = f"port: expected one that is free on 127.0.0.1 (0 takes any), got {port}, which another process uses"
    assert said in refused.stderr


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = call("start", "--model", "/no/such/model", "--port", "0", "--run-dir", str(tmp_path / "r"))
    assert refused.returncode == 2
    assert "model: /no/such/model" in refused.stderr


def test_nobody_to_talk_to_has_its_own_exit_status(tmp_path: Path) -> None:
    for command in (["status"], ["drain"], ["drain", "--then-stop"], ["stop"]):
        alone = call(*command, "--run-dir", str(tmp_path))
        assert alone.returncode == 6, command
        assert f"expected a running server in {tmp_path}, got none" in alone.stderr
        assert "--run-dir /run/tardigrade/tardigrade-8000" in alone.stderr


def test_check_config_prints_what_would_be_used(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text("port = 9000\n[gateway]\nmax_n = 3\n")
    config = json.loads(call("check-config", str(path), "--tp", "2").stdout)
    assert (config["port"], config["gateway"]["max_n"], config["tp"]) == (9000, 3, 2)
    bad = call("check-config", str(path), "--set", "gateway.max_m=2")
    assert (bad.returncode, bad.stderr) == (2, "supervisor: gateway.max_m: unknown key; did you mean gateway.max_n?\n")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "no.such.host.invalid"], "host: expected an address of this host, got no.such.host.invalid"),
        (["--host", "203.0.113.1"], "host: expected an address of this host, got 203.0.113.1"),
        (["--run-dir", "/dev/null"], "run_dir: expected a directory at /dev/null, got something else"),
        (["--run-dir", "/" + "a" * 120], "run_dir: expected a path of at most 74 bytes"),
        (["--state-dir", "/no/such/place"], "state_dir: expected a directory that can be made at /no/such/place"),
    ],
)
def test_check_config_finds_what_this_host_does_not_provide(flags: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_start(load_config(None, [{flags[0].strip("-").replace("-", "_"): flags[1]}]))
    assert str(refused.value).startswith(said)


def test_check_config_reads_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ConfigError, match=r"^model: .*/tokenizer\.json cannot be read: "):
        check_start(load_config(None, [{"model": str(tmp_path)}]))


def test_check_config_says_no_to_an_address_and_makes_nothing(tmp_path: Path) -> None:
    places = ["--run-dir", str(tmp_path / "r"), "--state-dir", str(tmp_path / "s")]
    assert call("check-config", *places).returncode == 0
    bad = call("check-config", *places, "--host", "203.0.113.1")
    assert (bad.returncode, bad.stderr) == (2, "supervisor: host: expected an address of this host, got 203.0.113.1\n")
    assert list(tmp_path.iterdir()) == []


def test_check_config_takes_one_file() -> None:
    both = call("check-config", "b.toml", "--config", "a.toml")
    assert (both.returncode, both.stderr) == (2, "supervisor: config: expected one file, got b.toml and --config a.toml\n")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gpus", "64"], "gpus: expected "),
        (["--gpus", "0", "--tp", "4"], "tp: expected 1, 2, 3 or 9 (the model has 3 KV heads and 9 heads), got 4"),
        (["--model", "/no/such/model"], "model: /no/such/model"),
        (["--embedding-model", "foo"], "embedding_model: expected all-MiniLM-L6-v2, a folder with config.json, "),
        (["--max-length", "100000"], "max_length: expected at most 8192 (the model's), got 100000"),
        (["--dtype", "int4"], "worker.dtype: expected one of auto, float32, bfloat16, float16, got 'int4'"),
        (["--quantization", "awq"], "worker.quantization: expected one of auto, none, exact, int8, int4, fp8, got 'awq'"),
        (["--kv-dtype", "fp4"], "worker.kv_dtype: expected one of auto, int8, int4, fp8, got 'fp4'"),
        (["--gpus", "0", "--kv-dtype", "fp8"], 'worker.kv_dtype: expected "auto", "int8" or "int4" on CPU cores, got "fp8"'),
    ],
)
def test_an_impossible_layout_is_refused_before_anything_heavy_is_loaded(
    flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals take 0.2 s of the processor; the imports of torch alone would take seconds."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    refused = call("start", *flags)
    assert refused.returncode == 2
    lines = refused.stderr.splitlines()
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}
    assert "supervisor" in loaded
    assert not loaded & {"torch", "transformers", "triton", "numba", "gguf", "zmq"}
    (told,) = [line for line in lines if not line.startswith("import time:")]
    assert told.startswith(f"supervisor: {said}")


def test_check_config_says_where_the_model_would_run() -> None:
    checked = call("check-config", "--gpus", "0", "--tp", "3", "--replicas", "2")
    assert checked.stderr.startswith("CPU cores: 2 replicas x tp 3, float32, ")
    assert re.match(r"\d+\.\d of \d+\.\d GiB[,\n]", checked.stderr.partition("weights take ")[2])


def test_the_version_is_that_of_the_package() -> None:
    assert call("--version").stdout == f"Tardigrade {version('tardigrade-serve')}\n"


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("start", "0123457"),
        ("status", "06"),
        ("drain", "0267"),
        ("stop", "067"),
        ("restart", "01267"),
        ("drill", "0123"),
        ("check-config", "02"),
    ],
)
def test_help_fits_80_columns_and_names_the_exit_statuses(command: str, statuses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = call(command, "--help").stdout
    assert [line for line in text.splitlines() if len(line) > 80] == []
    listed = text.partition("Exit status")[2].partition("\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == list(statuses)


def test_help_comes_at_once() -> None:
    """What takes time is imported inside the commands: help loads neither the post, nor configuration, nor a model."""
    slow = {"zmq", "msgspec", "rich", "torch", "logging", "httpx"}
    script = f"import sys, supervisor.__main__; print(sorted({slow} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert loaded.stdout == "[]\n"
