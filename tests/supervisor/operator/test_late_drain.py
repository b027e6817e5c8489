"""What `supervisor drain` says when its deadline passes, and when it is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from messages.outcomes import ExitCode
from supervisor.operator import calls
from supervisor.operator.drain_commands import drain


@pytest.mark.parametrize(("n_left", "said"), [(1, "1 request is"), (2, "2 requests are")])
def test_a_late_drain_says_what_is_left_and_what_comes_next(
    n_left: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ask_drain", lambda *_: None)
    monkeypatch.setattr(calls, "wait_drained", lambda *_: n_left)
    ended = CliRunner().invoke(drain, ["--deadline", "3", "--run-dir", str(tmp_path)])
    assert ended.exit_code == ExitCode.DEADLINE
    text = f"after 3 s {said} still in progress; new ones stay refused, and supervisor stop ends the server\n"
    assert ended.stderr.endswith(text)


@pytest.mark.parametrize(
    ("refusal", "is_serving", "status", "said"),
    [
        ("", True, ExitCode.DONE, "new requests are taken again\n"),
        ("", False, ExitCode.DEADLINE, "after 3 s some gateway takes no requests yet; supervisor status shows it\n"),
        ("expected a server that serves", True, ExitCode.UNUSABLE, "supervisor: expected a server that serves\n"),
    ],
)
def test_what_the_undo_of_a_drain_says(
    refusal: str, is_serving: bool, status: ExitCode, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ask_serve", lambda *_: refusal)
    monkeypatch.setattr(calls, "wait_serving", lambda *_: is_serving)
    ended = CliRunner().invoke(drain, ["--undo", "--deadline", "3", "--run-dir", str(tmp_path)])
    assert (ended.exit_code, ended.output.endswith(said)) == (status, True)
