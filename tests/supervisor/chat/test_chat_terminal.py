"""supervisor chat and run as people and scripts use them, over a whole real server; also while its gateway is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.client import Client
from messages.run_dir import zeromq_endpoint
from supervisor.chat import server_choice
from supervisor.chat.command import served_model
from supervisor.chat.server_choice import chosen, running_with
from supervisor.directories.run_dir_files import SERVER
from supervisor.library.stored_model import find_stored
from supervisor.operator.calls import is_alive
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, serving
from tests.support.terminal.tmux import HAS_TMUX, terminal_with

pytestmark = pytest.mark.slow
_OPTIONS = ("-o", "seed=1", "-o", "max_tokens=40")
_TEXT = "go on"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("run") / "d") as running:
        yield running


def run(*argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor", *argv]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def expected(server: RunningServer) -> str:
    with Client(zeromq_endpoint(server.run_dir)) as client:
        return client.chat([{"role": "user", "content": _TEXT}], seed=1, max_tokens=40).text


@pytest.mark.skipif(not HAS_TMUX, reason="tmux is not installed")
def test_an_answer_goes_on_when_the_gateway_is_killed_and_stops_at_ctrl_c(server: RunningServer, tmp_path: Path) -> None:
    text = expected(server)
    history = tmp_path / "tardigrade" / "chat_history"
    command = [sys.executable, "-m", "supervisor", "chat", "--run-dir", str(server.run_dir), *_OPTIONS]
    with terminal_with(tmp_path, command, {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("/help names the commands")
        terminal.type(_TEXT, "Enter")
        terminal.wait_for(text[:12])
        assert server.kill("gateway/0")
        terminal.wait_for(text.strip())
        terminal.type("/set max_tokens 4000", "Enter")
        terminal.wait_for("\nmax_tokens 4000")
        terminal.type("without an end", "Enter")
        terminal.wait_for("without an end\n")
        before = terminal.screen()
        while terminal.screen() == before:  # until the answer has begun
            pass
        terminal.type("", "C-c")
        terminal.wait_for("^C")
        terminal.type("/stats", "Enter")
        assert "tokens (stopped), first after" in terminal.wait_for("all 2 answers: ")
        terminal.type("", "C-d")
        terminal.wait_for("ended 0")
    assert "without an end" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(not HAS_TMUX, reason="tmux is not installed")
def test_run_without_a_prompt_is_a_chat_on_a_terminal(server: RunningServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "supervisor", "run", "hash-chain", "--run-dir", str(server.run_dir), "--max-tokens", "4"]
    with terminal_with(tmp_path, command, {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("/help names the commands")
        terminal.type("/show parameters", "Enter")
        terminal.wait_for("max_tokens 4\n")
        terminal.type("/bye", "Enter")
        terminal.wait_for("ended 0")


def test_a_chat_through_pipes(server: RunningServer) -> None:
    lines = f'{_TEXT}\n/clear\n"""\n{_TEXT}\n"""\n/exit\nnever\n'
    done = run("chat", "--run-dir", str(server.run_dir), *_OPTIONS, given=lines)
    text = expected(server)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{text}\nthe conversation is forgotten\n{text}\n", "")


def test_run_prints_one_answer(server: RunningServer) -> None:
    flags = ("--run-dir", str(server.run_dir), "--max-tokens", "4", "--seed", "1")
    done = run("run", "hash-chain", "go on", *flags)
    whole = run("run", "hash-chain", *flags, "--json", given="go on\n")
    assert (done.returncode, done.stderr) == (0, "")
    watched = run("run", "hash-chain", "go on", *flags, "--verbose")
    assert watched.stdout == done.stdout
    assert watched.stderr.startswith("4 tokens, first after ")
    answer = json.loads(whole.stdout)
    assert (answer["text"], answer["reason"], answer["tokens"]) == (done.stdout.removesuffix("\n"), "length", 4)
    raw = json.loads(run("run", "hash-chain", "go", "--raw", "--json", *flags, given="on").stdout)
    with Client(zeromq_endpoint(server.run_dir)) as client:
        assert raw["text"] == client.generate("go\n\non", max_tokens=4, seed=1).text


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["run", "hash-chain"], 2, "prompt: expected a text as the second argument or from a pipe, got none"),
        (["run", "nonsense", "a"], 2, "model: nonsense: no such file or folder; expected smollm2, "),
        (["run", "hash-chain", "a", "-o", "top=1"], 2, "top: expected an option of a request, got top; did you mean "),
        (["chat", "--url", "http://llm.example.com:8000"], 2, "url: expected ipc://PATH, tcp://HOST:PORT"),
        (["chat", "--run-dir", "/nowhere"], 6, "run_dir: expected a running server in /nowhere, got none"),
        (["chat", "--url", "ipc:///nowhere/zeromq-0"], 6, "ipc:///nowhere/zeromq-0: no server answered within"),
        (["chat", "--url", "http://127.0.0.1:9"], 6, "run_dir: expected a running server in "),
    ],
)
def test_what_cannot_be_done_is_said_on_one_line(argv: list[str], status: int, said: str) -> None:
    done = run(*argv)
    assert done.returncode == status
    assert done.stderr.startswith(f"supervisor: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["chat"], ["run", "hash-chain", "go on"]])
def test_a_server_that_was_killed_is_told_at_once(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The deadline of a request is ten minutes, that of this test less."""
    with serving(tmp_path_factory.mktemp("run") / "d", "--set", "worker.hash_chain_step_s=0.05") as doomed:
        asked = [sys.executable, "-m", "supervisor", *command, "--run-dir", str(doomed.run_dir), "-o", "max_tokens=4000"]
        pipe = subprocess.PIPE
        with subprocess.Popen(asked, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as talk:
            assert talk.stdin is not None
            assert talk.stdout is not None
            if command == ["chat"]:
                talk.stdin.write("go on\n")
            talk.stdin.close()
            assert talk.stdout.read(1)  # the answer has begun
            doomed.kill_all()
            assert talk.wait(DEADLINE_S) == 6
            assert talk.stderr is not None
            assert talk.stderr.read() == "supervisor: the server has ended: none of its processes is left\n"


def test_a_server_that_is_named_has_to_have_the_model(server: RunningServer) -> None:
    done = run("run", "another", "a", "--run-dir", str(server.run_dir))
    assert (done.returncode, done.stderr) == (2, "supervisor: model: expected one of hash-chain, got another\n")


def test_a_running_server_is_found_by_its_model(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(run_dir: Path, model: Path | str) -> tuple[Path, int]:
        run_dir.mkdir(parents=True)
        saved = {"model_name": "alike", "origin": {"flags": {}, "config": {"model": str(model)}, "facts": {}}}
        (run_dir / SERVER).write_text(json.dumps(saved))
        return run_dir, 0

    folders = [tmp_path / "one" / "alike", tmp_path / "two" / "alike"]
    for folder in folders:
        folder.mkdir(parents=True)
    others = [kept(tmp_path / str(number), folder) for number, folder in enumerate(folders)]
    private = kept(tmp_path / "tardigrade-llm-x" / "run", "org/private")
    monkeypatch.setattr(server_choice, "running", lambda: iter([private, *others, (server.run_dir, 0), (tmp_path / "3", 0)]))
    assert running_with("hash-chain") == zeromq_endpoint(server.run_dir)
    assert running_with(str(folders[1])) == zeromq_endpoint(others[1][0]), "of two folders with one name"
    assert running_with("alike") == zeromq_endpoint(others[0][0]), "by the name that clients see"
    assert running_with("org/private") is None
    assert running_with("") is None


def test_the_packaged_model_is_found_by_all_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SERVER).write_text(json.dumps({"model_name": "smollm2", "origin": {"flags": {}, "config": {}, "facts": {}}}))
    monkeypatch.setattr(server_choice, "running", lambda: iter([(tmp_path, 0)]))
    for name in ("", "smollm2", "SmolLM2-135M-Instruct"):
        assert running_with(name) == zeromq_endpoint(tmp_path)
        assert served_model(["other", "smollm2"], {"model": name or None, "port": 1}) == ("smollm2" if name else "other")
    assert find_stored("SmolLM2-135M-Instruct") == find_stored("smollm2")


def test_a_private_server_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_choice, "running", lambda: iter(()))
    server = chosen(None, None, None, "hash-chain")
    assert server.private is not None
    assert server.text == "a private server"
    assert is_alive(server.private.run_dir)
    server.close()
    assert not server.private.run_dir.parent.exists()
