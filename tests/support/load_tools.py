"""Run the load tools of `ops.bench` in this process."""

from __future__ import annotations

import json

from click.testing import CliRunner

from ops.bench.__main__ import main


def server_arguments(*flags: str) -> list[str]:
    """Flags of `supervisor start` for a load tool that starts a server."""
    return [part for flag in flags for part in ("--server-arg", flag)]


def run_load_tool(*arguments: str) -> dict:
    """Run one command; returns the JSON that it prints. Fails when its exit status is not 0."""
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
