"""When a chat takes its server for gone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest

from messages.errors import Unavailable
from messages.run_dir import zeromq_endpoint
from supervisor.chat.server_watch import ENDED, ServerEnding, watch_of

DEADLINE_S = 60.0


def fail_once(event: Event, ending: ServerEnding, on_end: Callable[[], None]) -> None:
    """A call that ends with an error after the event."""
    with ending.watched(on_end):
        assert event.wait(DEADLINE_S)
        raise Unavailable("the client was closed")


def test_a_server_that_is_missed_again_and_again_has_ended() -> None:
    looks = iter([False, False, False, True])  # one that is replaced comes back
    ended = Event()
    ending = ServerEnding(lambda: next(looks, False), every_s=0.0)
    with pytest.raises(Unavailable, match=ENDED):
        fail_once(ended, ending, ended.set)
    assert ending.has_ended
    assert next(looks, None) is None


def test_nothing_is_watched_after_the_answer_and_other_errors_stay() -> None:
    looked = Event()
    ending = ServerEnding(lambda: not looked.set(), every_s=0.0)
    with pytest.raises(Unavailable, match="the client was closed"):
        fail_once(looked, ending, lambda: None)
    assert not ending.has_ended
    with ServerEnding().watched(lambda: None):
        pass


def test_a_gateway_that_accepts_connections_is_a_server() -> None:
    """Its supervisor and the parent may both have died."""
    with TemporaryDirectory(prefix="tg-") as folder, socket.socket(socket.AF_UNIX) as gateway:
        endpoint = zeromq_endpoint(Path(folder), 3)
        look = watch_of(endpoint)
        assert look is not None
        assert not look()
        gateway.bind(endpoint.removeprefix("ipc://"))
        gateway.listen()
        assert look()
        gateway.close()
        assert not look()
    assert watch_of("tcp://127.0.0.1:5555") is None
