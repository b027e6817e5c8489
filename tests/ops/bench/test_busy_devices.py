"""The busy share of devices is that of the time between two settled readings of the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ops.bench import busy_devices
from ops.bench.busy_devices import BusyDevices
from ops.bench.own_server import OwnServer

_IDLE = {"worker/0.0": 2.0, "worker/1.0": 3.0, "worker/1.1": 0.0}


class ToldMetrics:
    """A page of metrics whose figures the test sets."""

    def __init__(self) -> None:
        self.busy_s, self.later = dict(_IDLE), list[dict[str, float]]()

    def page(self) -> bytes:
        """The page; each reading takes one step towards the last figures."""
        if self.later:
            self.busy_s = self.later.pop(0)
        name = "tardigrade_worker_step_seconds"
        rows = "".join(f'{name}_sum{{actor="{actor}"}} {value}\n' for actor, value in self.busy_s.items())
        return f"# TYPE {name} histogram\n{rows}".encode()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ToldMetrics, BusyDevices]]:
    metrics = ToldMetrics()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = metrics.page()
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the standard library
            pass

    monkeypatch.setattr(busy_devices, "_SETTLED_S", 0.6)
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield metrics, BusyDevices(OwnServer(server.server_address[1], 0, 0.0, Path()))
        server.shutdown()


def test_figures_that_come_late_count(told: tuple[ToldMetrics, BusyDevices]) -> None:
    metrics, devices = told

    def run() -> float:
        between = {"worker/0.0": 5.0, "worker/1.0": 4.0, "worker/1.1": 0.0}
        metrics.later = [between, {"worker/0.0": 11.0, "worker/1.0": 10.0, "worker/1.1": 0.0}]
        return 10.0

    assert devices.share(run) == (10.0, pytest.approx(0.8))  # 9 s and 7 s; rank 1.1 computes with rank 1.0


def test_a_run_without_steps_is_refused(told: tuple[ToldMetrics, BusyDevices]) -> None:
    with pytest.raises(ValueError, match="expected steps of at least one rank, got none"):
        told[1].share(lambda: 1.0)
