"""A spare does its warm-ups in a thread that has left a real-time policy; the process keeps the policy that it has."""

from __future__ import annotations

import os
import threading

import pytest

from supervisor.children import entrypoint


def test_a_spare_is_prepared_in_a_thread_without_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = os.sched_getscheduler(0), list[tuple[str, int, bool]]()

    def note(warm_up: str) -> None:
        seen.append((warm_up, os.sched_getscheduler(0), threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(entrypoint, "do_warm_up", note)
    entrypoint._prepare_without_hurry(("one", "two"))
    assert seen == [("one", os.SCHED_BATCH, False), ("two", os.SCHED_BATCH, False)]
    assert os.sched_getscheduler(0) == before


def test_a_warm_up_that_fails_ends_the_spare() -> None:
    with pytest.raises(ModuleNotFoundError):
        entrypoint._prepare_without_hurry(("no_such_module_anywhere",))
