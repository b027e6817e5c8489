"""Run the load tools of `ops.bench` in this process."""

from __future__ import annotations

import json

from click.testing import CliRunner

from ops.bench.__main__ import main


def run_load_tool(*arguments: str) -> dict:
    """Run one command; returns the JSON that it prints. Fails when its exit status is not 0."""
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
