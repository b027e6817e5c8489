"""Texts of the configuration that are not UTF-8."""

from __future__ import annotations

import os

import pytest

from messages.errors import ConfigError
from supervisor.config.server_config import load_config


def test_texts_that_are_not_utf8_are_refused_by_name() -> None:
    path = os.fsdecode(b"/tmp/caf\xe9")  # in Latin-1
    with pytest.raises(ConfigError) as refused:
        load_config(None, [{"run_dir": path}, {"gateway": {"chat_template": path}}])
    said = "expected text in UTF-8, and a locale that reads it, got '/tmp/caf\\udce9'"
    assert str(refused.value).splitlines()[1:] == [f"  run_dir: {said}", f"  gateway.chat_template: {said}"]


def test_other_letters_are_fine() -> None:
    assert load_config(None, [{"run_dir": "/tmp/café 世"}]).run_dir == "/tmp/café 世"
