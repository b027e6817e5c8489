"""A process that tests may end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.waiting import DEADLINE_S


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps for ten minutes. It is killed after the test."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
