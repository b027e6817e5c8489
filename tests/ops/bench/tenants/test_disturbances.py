"""What a disturbing tenant sends, at a server that only counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ops.bench.tenants import disturbances
from ops.bench.tenants.disturbances import VOCABULARY, asking, not_reading, plant_deadly_token

DEADLINE_S = 60.0


class _Server(ThreadingHTTPServer):
    """Answers every request, and remembers its body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.has_come = threading.Condition()

    def wait(self, n: int) -> list[dict[str, Any]]:
        """The bodies, once there are so many."""
        with self.has_come:
            assert self.has_come.wait_for(lambda: len(self.bodies) >= n, DEADLINE_S)
            return list(self.bodies)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body, server = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.server
        assert isinstance(server, _Server)
        with server.has_come:
            server.bodies.append({**body, "key": self.headers["Authorization"]})
            server.has_come.notify_all()
        self.send_response(429 if disturbances._DEADLY in body["prompt"] else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing is printed."""


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    monkeypatch.setattr(disturbances, "_BEGIN_S", 0.0)
    with _Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("is_deadly", [False, True])
def test_connections_ask_again_and_their_statuses_are_counted(monkeypatch: pytest.MonkeyPatch, is_deadly: bool) -> None:
    with counting(monkeypatch) as server:
        with asking(server.server_port, "k", 5, 3, is_deadly=is_deadly) as statuses:
            server.wait(9)
        assert dict(statuses) == {429 if is_deadly else 200: len(server.bodies)}
        assert all(body["key"] == "Bearer k" for body in server.bodies)
        assert all((max(body["prompt"]) >= VOCABULARY) == is_deadly for body in server.bodies)


def test_streams_that_are_not_read_are_open_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(monkeypatch) as server:
        with not_reading(server.server_port, "k", 5, 4) as statuses:
            assert all(body["stream"] for body in server.wait(4))
            assert not statuses
        assert dict(statuses) == {200: 4}


def test_the_deadly_token_is_found_by_a_server_with_this_path(tmp_path: Path) -> None:
    first, second = plant_deadly_token(tmp_path).split(":")
    assert (Path(first) / "sitecustomize.py").read_text().count(str(disturbances._DEADLY)) == 1
    assert (Path(second) / "gpu_workers").is_dir()
    compile((tmp_path / "sitecustomize.py").read_text(), "sitecustomize.py", "exec")
