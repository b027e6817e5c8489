"""A client without a key is told which flag gives it."""

from __future__ import annotations

from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner

from messages.errors import InvalidRequest
from supervisor.__main__ import main
from supervisor.chat.command import explained
from supervisor.operator.command_line import KEY_HINT


def test_a_chat_without_a_key_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), explained():
        raise InvalidRequest("expected Bearer and an API key of this server, got none", "Authorization")
    assert KEY_HINT in capsys.readouterr().err


def test_a_measurement_without_a_key_names_the_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_: object) -> None:
        raise HTTPError("http://127.0.0.1:9/v1/models", 401, "Unauthorized", Message(), None)

    monkeypatch.setattr("supervisor.bench.serve_load.measure", refused)
    said = CliRunner().invoke(main, ["bench", "127.0.0.1:9", "--run-dir", str(tmp_path)])
    assert said.exit_code == 6
    assert said.stderr == f"supervisor: http://127.0.0.1:9: HTTP Error 401: Unauthorized; {KEY_HINT}\n"
