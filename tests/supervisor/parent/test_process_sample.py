"""Real processes that are stopped, busy, asleep, and kept from running by others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.parent.process_sample import sample_of
from supervisor.policy.own_time import OwnTime
from tests.support.waiting import DEADLINE_S

_BUSY = "while True: pass"
_ASLEEP = "import time; time.sleep(1000)"
_WINDOW_S = 0.5

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count run delays")


@contextmanager
def running(code: str, n: int = 1) -> Iterator[list[int]]:
    processes = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(n)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def own_part(pid: int) -> float:
    """The own time of a process as a part of the time that passed."""
    began_s = time.monotonic()
    own = OwnTime(began_s, sample_of(pid))
    wait_until(lambda: time.monotonic() > began_s + _WINDOW_S)
    now_s = time.monotonic()
    return own.add_sample(now_s, sample_of(pid)) / (now_s - began_s)


def is_suspended(pid: int) -> bool:
    sample = sample_of(pid)
    return sample is not None and sample.is_suspended


def test_a_stopped_process_is_suspended_until_it_goes_on_and_its_time_is_its_own() -> None:
    with running(_BUSY) as (pid,):
        assert not is_suspended(pid)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_suspended(pid))
        assert own_part(pid) == pytest.approx(1.0)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_suspended(pid))


def test_a_process_that_is_kept_from_running_has_little_time_of_its_own() -> None:
    core = {min(os.sched_getaffinity(0))}
    with running(_BUSY) as (starved,), running(_BUSY, 3) as others:
        os.setpriority(os.PRIO_PROCESS, starved, 19)
        for pid in (starved, *others):
            os.sched_setaffinity(pid, core)
        wait_until(lambda: own_part(starved) < 0.5)
        os.kill(starved, signal.SIGSTOP)
        wait_until(lambda: is_suspended(starved))
        assert own_part(starved) == pytest.approx(1.0), "among busy processes too, a stopped one is told from a starved one"


def test_a_sleeping_process_has_all_its_time_for_itself() -> None:
    with running(_ASLEEP) as (pid,):
        wait_until(lambda: own_part(pid) > 0.95)
        assert not is_suspended(pid)


def test_nothing_is_known_of_a_process_that_has_ended() -> None:
    with running(_ASLEEP) as (pid,):
        pass
    assert sample_of(pid) is None
