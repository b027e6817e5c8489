"""`watch-cost` with real servers, and watchers that get no answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ops.bench.watching.watchers import NotWatched, watching
from tests.support.load_tools import run_load_tool


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


@pytest.mark.slow
def test_all_kinds_have_their_turns_and_the_watched_ones_are_watched() -> None:
    sizes = ("--rounds", "2", "--round-s", "0.01", "--each", "2", "--concurrency", "2", "--input", "8", "--output", "4")
    found = run_load_tool("watch-cost", "--model", "hash-chain", *sizes)["models"]["hash-chain"]
    assert found["requests_of_a_round"] % 2 == 0
    assert found["scrapes"] >= 4  # one before each turn of two servers
    assert found["page_events"] >= 4
    for figure in (found["tokens_per_s"], found["cpu_us"]):
        assert {kind: [len(one) for one in row] for kind, row in figure["rounds"].items()} == {
            kind: [2, 2] for kind in ("off", "default", "watched")
        }
        assert set(figure["ratios"]) == {"default / off", "watched / default", "watched / off"}
        assert all(one > 0.0 for row in figure["rounds"].values() for rounds in row for one in rounds)
