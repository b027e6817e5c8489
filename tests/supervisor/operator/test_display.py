"""What a person sees of a start: progress, where the server listens, and commands that run."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from messages.run_dir import run_dir_of, zeromq_endpoint
from supervisor.logs import configure_logs
from supervisor.operator import display as display_module
from supervisor.operator.display import Display, serving_text, supervisor_command


def test_the_line_to_copy_is_valid_json() -> None:
    text = serving_text("a model", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", 1.25)
    body = text.partition("-d '")[2].partition("'\n")[0]
    assert json.loads(body)["model"] == "a model"
    assert "after 1.2 s" in text
    assert "\n  HTTP    http://127.0.0.1:8000/        in a browser: the server, live\n" in text
    assert "ipc:///run/zeromq-0" in text


def test_the_hints_name_the_server_that_they_are_for() -> None:
    endpoints = [zeromq_endpoint(run_dir_of(port)) for port in (8000, 8123)]
    assert "supervisor stop " in serving_text("m", "http://127.0.0.1:8000", endpoints[0], 1.0)
    assert "supervisor stop --port 8123 " in serving_text("m", "http://127.0.0.1:8123", endpoints[1], 1.0)
    assert "supervisor stop --run-dir /r " in serving_text("m", "http://[::1]:8123", "ipc:///r/zeromq-0", 1.0)


def test_the_commands_run_without_the_environment_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "an env" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert supervisor_command() == f"'{folder}/python' -m supervisor"
    (folder / "supervisor").touch(mode=0o755)
    assert supervisor_command() == f"'{folder}/supervisor'"
    monkeypatch.chdir(tmp_path / "an env")
    assert supervisor_command() == "bin/supervisor"
    text = serving_text("m", "http://127.0.0.1:8000", "ipc:///r/zeromq-0", 1.0)
    assert '\n    bin/python -c "from messages.client' in text
    assert "\n  bin/supervisor status --run-dir /r    show" in text
    assert "\n  bin/supervisor stop --run-dir /r      finish" in text
    assert "\n  bin/supervisor chat --run-dir /r      talk" in text
    monkeypatch.setenv("PATH", str(folder))
    assert supervisor_command() == "supervisor"


def test_a_model_without_a_tokenizer_is_asked_with_token_ids() -> None:
    text = serving_text("m", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", 1.0, takes_text=False)
    assert "curl -N http://127.0.0.1:8000/v1/generate " in text
    body = text.partition("-d '")[2].partition("'\n")[0]
    assert json.loads(body)["tokens"] == [1, 2, 3]
    assert "generate([1, 2, 3], max_tokens=16).tokens" in text
    assert "chat" not in text


def test_a_model_without_a_chat_template_is_asked_with_a_prompt() -> None:
    text = serving_text("m", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", 1.0, takes_chat=False)
    assert "curl -N http://127.0.0.1:8000/v1/completions " in text
    assert json.loads(text.partition("-d '")[2].partition("'\n")[0])["prompt"] == "The capital of France is"
    assert "chat" not in text


@pytest.mark.usefixtures("restored_logging")
def test_with_a_json_log_every_line_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs("json", "info", "supervisor/0", 1)
    display = Display("m", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", is_json=True, is_live=True)
    display.loading("worker/0.0", "weights", 0.5)
    display.serving(1.25)
    display.failed("no more")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["serving", "supervisor: no more"]
    assert (lines[0]["url"], lines[0]["after_s"]) == ("http://127.0.0.1:8000", 1.25)


def test_progress_is_shown_on_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display("m", "http://127.0.0.1:8000", "f", is_live=False)
    display.loading("worker/0.0", "weights", 0.5)
    display.ready("worker/0.0", 1.0)
    assert capsys.readouterr().err == ""
    display.serving(1.0)
    assert "serves m" in capsys.readouterr().err


def test_the_clock_of_a_child_runs_until_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(console=Console(file=io.StringIO()))
    monkeypatch.setattr(display_module, "_new_progress", lambda: progress)
    display = Display("m", "http://127.0.0.1:8000", "f", is_live=True)
    display.loading("worker/0.0", "weights", 1.0)
    assert not progress.finished, "rich stops the clock of a bar that is full"
    display.loading("worker/0.0", "warm up", 0.5)
    display.ready("worker/0.0", 1.0)
    assert progress.finished
    display.close()


def test_bars_end_with_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display("m", "http://127.0.0.1:8000", "f", is_live=True)
    display.loading("worker/0.0", "weights", 0.5)
    display.ready("worker/0.0", 1.0)
    display.serving(1.0)
    said = capsys.readouterr().err
    display.loading("worker/0.0", "starting", 0.0)
    assert "serves m" in said
    assert capsys.readouterr().err == ""


def test_with_keys_the_commands_make_one_and_show_it() -> None:
    text = serving_text("m", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", 1.0, keys_dir="/var/state")
    assert "keys add --tenant me --state-dir /var/state)\n" in text
    assert "-H 'Content-Type: application/json' -H \"Authorization: Bearer $KEY\" \\" in text
    assert "Client('ipc:///run/zeromq-0', api_key='$KEY').generate(" in text
    assert 'supervisor chat --run-dir /run --api-key "$KEY"    talk' in text
    assert "KEY" not in serving_text("m", "http://127.0.0.1:8000", "ipc:///run/zeromq-0", 1.0)


def test_commands_reach_a_server_that_listens_everywhere() -> None:
    zeromq, tls = "ipc:///run/zeromq-0", "--cacert server.pem"
    text = serving_text("m", "https://0.0.0.0:8000", zeromq, 1.0, tls_flags=tls, zeromq_tcp="tcp://0.0.0.0:5555")
    assert "curl -N --cacert server.pem https://localhost:8000/v1/" in text
    assert "  https://localhost:8000/v1 " in text
    assert "  it listens on https://0.0.0.0:8000: other machines take a name or address of this one\n" in text
    assert "listens" not in serving_text("m", "http://192.168.1.2:8000", zeromq, 1.0)
    [tcp] = [line for line in text.splitlines() if "tcp://0.0.0.0:5555" in line]
    command = "supervisor keys zeromq --run-dir /run"
    assert tcp.endswith(f"{command} prints its public key, if it is encrypted"), "not that of another server"
    assert "curl -N http://127.0.0.1:8000/v1/" in serving_text("m", "http://0.0.0.0:8000", zeromq, 1.0)
    assert "curl -N http://192.168.1.2:8000/v1/" in serving_text("m", "http://192.168.1.2:8000", zeromq, 1.0)
