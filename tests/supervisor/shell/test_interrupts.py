"""SIGINT ends the commands that go on until it comes, however they were started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.shell.interrupts import Interrupts
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, serving

_LINE = '{"timestamp":"2026-11-28T11:00:00","level":"info","actor":"gateway/0","event":"told"}\n'
# sends SIGINT to itself within the callback with which Python ends an import, where a KeyboardInterrupt is dropped; the import
# is one that the command makes itself
_INTERRUPTED_IMPORT = """
import os, signal, sys
from supervisor.__main__ import main

def look(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "cb" and "supervisor.log_reader.files" in sys.modules:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

main.commands["logs"]  # imported
sys.setprofile(look)
main(["logs", "--follow", "--json", "--state-dir", sys.argv[1]])
"""


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("run") / "d") as running:
        yield running


def test_an_interrupt_that_python_drops_ends_the_loop() -> None:
    class Dropping:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with Interrupts() as interrupts:
        assert not interrupts.has_come
        while not interrupts.has_come:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "unraisablehook", lambda _: None)
                Dropping()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_ends_the_block_and_no_other_error_does() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("goes on after the signal")
    assert interrupts.has_come
    with pytest.raises(ZeroDivisionError), Interrupts():
        raise ZeroDivisionError


def test_a_signal_that_was_ignored_and_blocked_is_heard() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.has_come


def test_an_interrupt_at_the_end_of_an_import_ends_logs(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(_LINE)
    command = [sys.executable, "-c", _INTERRUPTED_IMPORT, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, _LINE)
    assert "Exception ignored in: <function _get_module_lock" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["logs", "-f"], ["top"], ["status", "--watch"]])
def test_a_background_job_of_a_script_ends(command: list[str], server: RunningServer) -> None:
    """A shell without job control starts it with SIGINT ignored."""
    script = 'trap "" INT; exec "$@"'
    argv = [sys.executable, "-m", "supervisor", *command, "--json", "--run-dir", str(server.run_dir)]
    with subprocess.Popen(["sh", "-c", script, "sh", *argv], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline()
        job.send_signal(signal.SIGINT)
        job.stdout.read()  # until its end
        assert job.wait(DEADLINE_S) == 0
