"""The level of standard error, which may change while processes run."""

from __future__ import annotations

import logging
from pathlib import Path

from messages.log_file.level_file import LEVEL_FILE, StreamLevel, write_level


def test_a_process_follows_the_file_at_most_once_a_second(tmp_path: Path) -> None:
    clock = [0.0]
    level = StreamLevel(logging.WARNING, tmp_path, lambda: clock[0])
    assert level.number == logging.WARNING
    write_level(tmp_path, "info")
    assert level.number == logging.WARNING
    clock[0] = 1.0
    assert level.number == logging.INFO
    (tmp_path / LEVEL_FILE).write_text("loud")
    clock[0] = 2.0
    assert level.number == logging.INFO
    (tmp_path / LEVEL_FILE).unlink()
    clock[0] = 3.0
    assert level.number == logging.INFO
    assert StreamLevel(logging.ERROR).number == logging.ERROR
