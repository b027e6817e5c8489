"""`LLM` over a real private server of the hash-chain model: answers, errors, and that the server ends with its program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from messages.errors import ConfigError, InvalidRequest, Unavailable
from messages.local import LLM
from supervisor.operator.calls import is_alive
from tests.support.waiting import until

_PROGRAM = """
import os, sys
from messages.local import LLM
llm = LLM("hash-chain")
print(llm.server.run_dir, llm.server._guard.pid, llm.generate("a", max_tokens=4, seed=1).text, sep="|", flush=True)
if "with a child" in sys.argv[1] and not os.fork():
    sys.stdin.read()  # holds all that it has inherited until the test is over
    os._exit(0)
input()
"""


def _run_program(victim: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, victim], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("hash-chain", speculation=False) as running:
        yield running


def test_a_list_is_answered_in_its_order(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    one = llm.generate("b", max_tokens=4, seed=1)
    many = llm.generate(["a", "b", "c"], max_tokens=4, seed=1, progress=True)
    assert many[1].tokens == one.tokens
    assert len({tuple(answer.tokens) for answer in many}) == 3
    shown = capfd.readouterr().err
    assert "3/3" in shown
    assert "tokens/s" in shown
    assert (
        llm.generate([[1, 2, 3]], max_tokens=4, seed=1)[0].tokens == llm.client.generate([1, 2, 3], max_tokens=4, seed=1).tokens
    )
    assert len(llm.generate("b", max_tokens=4, n=3).choices) == 3


@pytest.mark.parametrize(("is_notebook", "is_shown"), [(False, False), (True, True)])
def test_a_list_has_a_bar_in_a_notebook_by_default(
    llm: LLM, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_notebook: bool, is_shown: bool
) -> None:
    if is_notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    llm.generate(["a"], max_tokens=4)
    assert ("1/1" in capfd.readouterr().err) is is_shown


def test_a_conversation_and_a_list_of_them(llm: LLM) -> None:
    said = [{"role": "user", "content": "hello"}]
    one, many = llm.chat(said, max_tokens=4, seed=1), llm.chat([said, said], max_tokens=4, seed=1)
    assert [answer.tokens for answer in many] == [one.tokens] * 2


def test_errors_are_exceptions(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens: expected"):
        llm.generate("a", max_tokens=-1)
    with pytest.raises(InvalidRequest, match="prompts: expected a text, or a list of"):
        llm.generate([1, 2, 3])  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidRequest, match="request: expected none for a list"):
        llm.generate(["a", "b"], request="one")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "nonsense"}, r"^model: nonsense: no such file or folder; expected smollm2, "),
        ({"tensor_parallel_size": 2}, r"^tensor_parallel_size: unknown; here it is tp$"),
        ({"set": {"worker.threadss": 1}}, r"^worker.threadss: unknown key; did you mean worker.threads\?"),
    ],
)
def test_a_start_that_cannot_succeed_says_why(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LLM(**options)  # pyright: ignore[reportArgumentType]


def test_a_start_has_a_deadline_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("messages.local.private_server._LONGEST_FOLDER_BYTES", 4096)
    monkeypatch.setattr("messages.local.private_server._start_command", lambda: [sys.executable, "-c", "input()", "&&"])
    with pytest.raises(Unavailable, match=r"the server ended with status 1|did not serve"):
        LLM("hash-chain", start_timeout_s=0.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["program", "program with a child", "guard", "end of the program"])
async def test_the_server_ends_with_its_program(victim: str) -> None:
    program = _run_program(victim)
    assert program.stdin is not None
    assert program.stdout is not None
    run_dir, guard, text = program.stdout.readline().strip().split("|")
    assert text
    assert is_alive(Path(run_dir))
    match victim:
        case "program" | "program with a child":
            program.kill()
        case "guard":
            os.kill(int(guard), signal.SIGKILL)
        case _:
            program.stdin.write("\n")
            program.stdin.flush()
    await until(lambda: not is_alive(Path(run_dir)))
    if victim != "guard":
        await until(lambda: not Path(run_dir).parent.exists())
    shutil.rmtree(Path(run_dir).parent, ignore_errors=True)
    program.kill()
    program.wait(60)
    program.stdin.close()
    program.stdout.close()
