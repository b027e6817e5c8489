"""What `supervisor drain` says when its deadline passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from messages.outcomes import ExitCode
from supervisor.__main__ import drain
from supervisor.operator import calls


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
