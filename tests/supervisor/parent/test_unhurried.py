"""Work without hurry leaves a real-time policy in a thread; the process keeps the policy that it has."""

from __future__ import annotations

import os
import threading

import pytest

from supervisor.parent.unhurried import run_unhurried


def test_work_without_hurry_runs_in_a_thread_of_its_own_policy() -> None:
    before, seen = os.sched_getscheduler(0), list[tuple[int, bool]]()
    run_unhurried(lambda: seen.append((os.sched_getscheduler(0), threading.current_thread() is threading.main_thread())))
    assert seen == [(os.SCHED_BATCH, False)]
    assert os.sched_getscheduler(0) == before


def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_unhurried(fail)


def test_without_a_thread_the_work_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    seen = list[bool]()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    run_unhurried(lambda: seen.append(threading.current_thread() is threading.main_thread()))
    assert seen == [True]
