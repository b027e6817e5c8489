"""The runs of `gpu-batch` over HTTP: their time is that of requests on connections that are open already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from ops.bench.commands.gpu_batch import through


class _Completions(BaseHTTPRequestHandler):
    """Answers each completion with one token. The server counts its connections."""

    protocol_version = "HTTP/1.1"
    hangs_up = False

    def setup(self) -> None:
        super().setup()
        assert isinstance(self.server, _CountingServer)
        self.server.n_connections += 1

    def do_GET(self) -> None:
        self._answer(msgspec.json.encode({"data": [{"id": "m"}]}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        event = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        self._answer(b"data: %b\n\n" % msgspec.json.encode(event))
        self.close_connection = self.hangs_up
        if self.hangs_up:
            assert isinstance(self.server, _CountingServer)
            self.connection.shutdown(2)
            self.server.has_hung_up.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
        """Nothing."""

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HangingUp(_Completions):
    hangs_up = True


class _CountingServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[_Completions]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.n_connections, self.has_hung_up = 0, threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def counting(handler: type[_Completions]) -> Iterator[_CountingServer]:
    """A server in threads of this process."""
    server = _CountingServer(handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60.0)


def test_runs_share_their_connections() -> None:
    with counting(_Completions) as server, through(server.url) as run:
        before = server.n_connections  # that of the question for the model
        for _ in range(3):
            assert run([[1, 2]], [1]) > 0
        assert server.n_connections == before + 1


def test_a_connection_that_the_server_has_closed_between_two_runs_is_not_used() -> None:
    with counting(_HangingUp) as server, through(server.url) as run:
        for _ in range(3):
            run([[1, 2]], [1])
            assert server.has_hung_up.wait(60.0)
            server.has_hung_up.clear()
