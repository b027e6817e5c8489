"""The environments with clients of other projects, which `make client-env` makes; CLIENT_ENVIRONMENTS names another folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_FOLDER = Path(os.environ.get("CLIENT_ENVIRONMENTS", "") or Path(sys.prefix) / "clients")
_NOT_THEIRS = ("PYTHONPATH", "PYTEST_ADDOPTS", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")


def program_of(environment: str, name: str) -> str:
    """The path of a program in one of the environments. Without that environment the test is skipped."""
    program = _FOLDER / environment / "bin" / name
    if not program.exists():
        pytest.skip(f"needs {program.parent.parent}: make client-env")
    return str(program)


def own_variables() -> dict[str, str]:
    """The environment variables of this process without those that would change what such a program does."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
