"""Property tests are bounded by examples, not by time: a slow machine fails none. Collections of garbage are short.

SIGINT means the same in a background job as in the foreground. Threads of torch that wait for each other leave the cores to
other processes: the tests run in more processes than there are cores, and a model took three times as long otherwise.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from supervisor.shell.interrupts import take_interrupts
from tests.support.depth import at_depth

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when torch is imported
settings.register_profile("examples", deadline=None, max_examples=at_depth(60))
settings.load_profile("examples")
# all tests of these folders have this mark. `make test` need not look into them: to import them takes 20 s of a core
_MARK_BY_FOLDER = {"long": "long", "clients": "long", "gpu": "gpu"}
_UNTIL_S = float(os.environ.get("TEST_UNTIL_S", "inf"))  # Unix time after which no test begins
take_interrupts()  # `make test &` in a script has it ignored, and so would every program that a test starts and interrupts


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """On a slow machine the time of continuous integration may be over before the last long test: it is skipped and counted."""
    if time.time() > _UNTIL_S:
        pytest.skip("the time of this run was over: TEST_UNTIL_S")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests by their folder."""
    if (mark := _MARK_BY_FOLDER.get(item.path.relative_to(Path(__file__).parent).parts[0])) is not None:
        item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all tests without the garbage collector, and keep what they have imported out of its way.

    It stays to the end, and every later collection would walk through it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
