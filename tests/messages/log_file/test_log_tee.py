"""What the log file gets of each event, and what standard error still shows."""

from __future__ import annotations

import json
import logging

import pytest
import structlog

from messages.log_file.level_file import StreamLevel
from messages.log_file.log_tee import LogTee, encoded
from messages.log_file.rotated_file import RotatedFile
from messages.log_file.writer import LogWriter


class Lines(LogWriter):
    def __init__(self) -> None:
        super().__init__(RotatedFile.__new__(RotatedFile), lambda n: b"")
        self.events: list[dict[str, object]] = []

    def write(self, lines) -> None:
        self.events += map(json.loads, lines)


def test_the_file_gets_what_standard_error_leaves_out() -> None:
    lines = Lines()
    tee = LogTee(lines, StreamLevel(logging.WARNING))
    with pytest.raises(structlog.DropEvent):
        tee(None, "info", {"event": "ready", "level": "info", "path": object})
    warning = {"event": "slow", "level": "warning"}
    assert tee(None, "warning", warning) is warning
    assert [event["event"] for event in lines.events] == ["ready", "slow"]
    assert lines.events[0]["path"] == "<class 'object'>"


def test_a_traceback_is_text_in_the_file_without_values_and_stays_for_standard_error() -> None:
    lines = Lines()
    try:
        secret = "the prompt"
        raise ValueError(len(secret))
    except ValueError as error:
        event = {"event": "failed", "level": "error", "exc_info": error}
    assert LogTee(lines, StreamLevel(logging.INFO))(None, "error", event)["exc_info"] is not None
    assert "ValueError: 10" in str(lines.events[0]["exception"])
    assert "exc_info" not in lines.events[0]


@pytest.mark.parametrize("fields", [{"big": "x" * 200_000}, {f"k{n}": "y" * 5000 for n in range(40)}])
def test_a_long_event_is_cut(fields: dict[str, str]) -> None:
    line = encoded({"event": "e", "actor": "gateway/0", "level": "info", "timestamp": "t", **fields})
    assert len(line) <= 1 << 16
    assert json.loads(line)["actor"] == "gateway/0"
