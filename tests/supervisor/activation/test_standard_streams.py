"""A server whose starter has closed standard input, output or error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.supervisor.command_line import DEADLINE_S

_LOOK = """
import os, sys
from pathlib import Path
from supervisor.activation.standard_streams import open_closed_streams
open_closed_streams()
print("lost", file=sys.stdout, flush=True)
print("lost", file=sys.stderr, flush=True)
found = [os.readlink(f"/proc/self/fd/{fd}") + " " + str(os.get_inheritable(fd)) for fd in range(3)]
Path(sys.argv[1]).write_text(repr([sys.stdin.read(), *found]))
"""


def run(closed: str, *words: str) -> int:
    """The exit status of Python with these words, some of whose standard streams are closed, the others /dev/null."""
    shell = ["sh", "-c", f'exec "$@" </dev/null >/dev/null 2>&1 {closed}', "sh", sys.executable, *words]
    return subprocess.run(shell, timeout=DEADLINE_S, check=False).returncode


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", "2>&-", ">&-", ""])
def test_closed_streams_are_opened(closed: str, tmp_path: Path) -> None:
    assert run(closed, "-c", _LOOK, str(tmp_path / "found")) == 0
    assert (tmp_path / "found").read_text() == repr(["", *["/dev/null True"] * 3])


def test_a_start_without_any_stream_gets_as_far_as_its_configuration() -> None:
    assert run("<&- >&- 2>&-", "-m", "supervisor", "start", "--set", "nonsense=1") == 2
