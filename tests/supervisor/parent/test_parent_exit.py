"""How the parent ends when its supervisor dies before it has begun: of the same signal, and without a word."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.waiting import DEADLINE_S

_DIES_AT_ONCE = """
import os, resource
from supervisor.parent.parent import start_under_parent
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
start_under_parent()
os.kill(os.getpid(), {number})
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_it_dies_of_the_signal_that_killed_a_supervisor_without_children(number: int) -> None:
    program = [sys.executable, "-c", _DIES_AT_ONCE.format(number=int(number))]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, ended.stderr) == (-number, "")
