"""Prometheus and Alertmanager with the configurations of ops/prometheus, on free ports, for the length of a test."""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from ops.bench.own_server import free_ports
from tests.support.monitoring.rules import FOLDER, RULES

DEADLINE_S = 120.0
_POLL_S = 0.05
_END_S = 30.0
_ALERTMANAGER = "prometheus-alertmanager"


@dataclass(frozen=True)
class Told:
    """One alert as the web hook got it, and when, in seconds of the monotonic clock."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    status: str
    at_s: float


class WebHook:
    """What Alertmanager calls. `url`: where."""

    def __init__(self) -> None:
        self._told: queue.Queue[Told] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait(self, name: str, within_s: float = DEADLINE_S, **labels: str) -> Told:
        """The next alert with this name and these labels that fires. Raises: AssertionError after `within_s`."""
        end_s = time.monotonic() + within_s
        others = []
        while (left_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                told = self._told.get(timeout=left_s)
                if told.name == name and told.status == "firing" and labels.items() <= told.labels.items():
                    return told
                others.append(told)
        raise AssertionError(f"no {name} within {within_s:.1f} s; told were {others}")

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        told = self._told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body: Any = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    labels = dict(alert["labels"])
                    name = labels.pop("alertname")
                    told.put(Told(name, labels, alert["annotations"], alert["status"], time.monotonic()))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        return Handler


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query. Raises: AssertionError with what Prometheus says of an expression that is none."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=60.0).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        return answer["data"]["result"]

    def wait(self, expression: str, within_s: float = DEADLINE_S) -> list[dict[str, Any]]:
        """The series, once there are any. Raises: AssertionError after `within_s`."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            if found := self.ask(expression):
                return found
            time.sleep(_POLL_S)
        raise AssertionError(f"{expression}: nothing within {within_s:.1f} s")


def needed(program: str) -> str:
    """The path of a program. Skips the test without it."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program}: make monitoring-env installs it")
    return path


@contextlib.contextmanager
def prometheus(
    folder: Path, server_url: str, alertmanager_url: str = "", key: str = "", ca: Path | None = None
) -> Iterator[Prometheus]:
    """Prometheus with the configuration of ops/prometheus, which scrapes this server. `key`: of the role admin, if clients
    show keys. `ca`: who has signed the certificate of a server with TLS."""
    (port,) = free_ports(1)
    folder.mkdir(exist_ok=True)
    config: Any = msgspec.yaml.decode((FOLDER / "prometheus.yml").read_bytes())
    config["rule_files"] = [str(RULES)]
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [server_url.partition("://")[2]]}]
    job["scheme"] = server_url.partition("://")[0]
    if ca is not None:
        job["tls_config"] = {"ca_file": str(ca)}
    if key:
        job["authorization"] = {"credentials": key}
    config["alerting"]["alertmanagers"] = (
        [{"static_configs": [{"targets": [alertmanager_url.removeprefix("http://")]}]}] if alertmanager_url else []
    )
    (folder / "prometheus.json").write_bytes(msgspec.json.encode(config))
    places = [f"--config.file={folder / 'prometheus.json'}", f"--storage.tsdb.path={folder / 'data'}"]
    with _running([needed("prometheus"), *places, f"--web.listen-address=127.0.0.1:{port}"], folder / "log", port):
        yield Prometheus(f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def alertmanager(folder: Path, hook: WebHook) -> Iterator[str]:
    """Alertmanager with the configuration of ops/prometheus, which calls this web hook; yields its address."""
    (port,) = free_ports(1)
    folder.mkdir(exist_ok=True)
    config: Any = msgspec.yaml.decode((FOLDER / "alertmanager.yml").read_bytes())
    config["receivers"][0]["webhook_configs"][0]["url"] = hook.url
    (folder / "alertmanager.json").write_bytes(msgspec.json.encode(config))
    places = [f"--config.file={folder / 'alertmanager.json'}", f"--storage.path={folder / 'data'}"]
    flags = [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]  # it is alone
    with _running([needed(_ALERTMANAGER), *places, *flags], folder / "log", port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[None]:
    """A program that is ready, and is ended afterwards. Raises: AssertionError with its log."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + DEADLINE_S
        while not _is_ready(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(_POLL_S)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False
