"""Commands whose reader has gone end by SIGPIPE, without a word."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from supervisor.shell.closed_output import ended_by_closed_output
from tests.support.supervisor.command_line import DEADLINE_S


@pytest.mark.parametrize(
    "words", [["--help"], ["start", "--help"], ["--version"], ["config", "sample"], ["completion", "fish"]]
)
def test_a_command_that_nobody_reads_ends_by_sigpipe_and_says_nothing(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "supervisor", *words]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_another_broken_connection_is_an_error_as_before() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(BrokenPipeError), ended_by_closed_output():
        ours.send(b"a")
