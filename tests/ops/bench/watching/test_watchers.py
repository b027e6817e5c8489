"""Watchers that get no answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ops.bench.watching.watchers import NotWatched, watching


@pytest.fixture
def other_server() -> Iterator[str]:
    """Something that answers everything with 404."""

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_cannot_be_watched_ends_the_measurement(other_server: str) -> None:
    with pytest.raises(NotWatched, match="GET /metrics: HTTP 404"), watching(other_server):
        pytest.fail("the measurement has begun")
