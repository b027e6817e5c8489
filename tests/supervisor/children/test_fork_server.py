"""A fork server says that it can fork once it is alone in its process."""

from __future__ import annotations

import pytest

from supervisor.children import fork_server


def test_it_waits_for_the_end_of_the_thread_of_its_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread has no hurry, and nothing is forked beside another thread."""
    threads, pauses_s = [["1", "2"], ["1", "2"], ["1"]], list[float]()
    monkeypatch.setattr(fork_server.os, "listdir", lambda path: threads.pop(0))
    monkeypatch.setattr(fork_server.time, "sleep", pauses_s.append)
    fork_server._wait_alone()
    assert (threads, len(pauses_s)) == ([], 2)
