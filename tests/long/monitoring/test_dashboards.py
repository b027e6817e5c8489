"""Every expression of the dashboards has series in a real Prometheus that scrapes a real server: with load on two replicas, a
tenant beyond its limit, a connection that the server has closed, and a GPU."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from messages.access.api_key import Role
from ops.bench.own_keys import add_key
from ops.grafana.__main__ import PAGES
from ops.grafana.panels import Query
from ops.metric_tables import metrics_by_role
from tests.support.monitoring.programs import prometheus
from tests.support.nvml.stub_library import StubNvml
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.long

_LIMITS = "[tenants.default]\ntokens_per_day = 1000000000\n[tenants.loud]\nrequests_per_min = 1\n"


def asked(query: Query) -> str:
    """The expression as Grafana sends it."""
    return query.expression.replace("$instance", ".*").replace("$__rate_interval", "30s")


@contextmanager
def load(server: RealServer, key: str) -> Iterator[None]:
    """Requests, one after the other, until the end of the block."""
    stopped = threading.Event()
    errors: list[str] = []

    def run() -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60.0) as client:
            while not stopped.is_set():
                answer = client.post(f"{server.url}/v1/generate", json={"tokens": list(range(1, 40)), "max_tokens": 20})
                if answer.status_code not in (200, 401):  # gateways read new keys within a second
                    errors.append(answer.text)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    assert not errors


def flood(server: RealServer, key: str) -> None:
    """Ask until the limit of the key's tenant refuses it. Gateways read new keys within a second."""
    statuses = set[int]()
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60.0) as client:
        while 429 not in statuses:
            answer = client.post(f"{server.url}/v1/generate", json={"tokens": [1], "max_tokens": 1})
            statuses.add(answer.status_code)
            assert answer.status_code in (200, 401, 429), answer.text


def be_cut(server: RealServer) -> None:
    """Send half a request, and wait until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as client:
        client.sendall(b"GET /health HT")
        while client.recv(4096):  # it may say why
            pass


def test_every_expression_has_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    stub.say(gpus=1, busy=87, watts=412, celsius=61, used=71_200_000_000, memory_megahertz=2619)
    (tmp_path / "limits.toml").write_text(_LIMITS)
    flags = ("--model", "hash-chain", "--replicas", "2", "--api-keys", "--config", str(tmp_path / "limits.toml"))
    with real_server(*flags, "--set", 'gpu_monitor.devices=["0"]', "--set", "gateway.head_s=1.0") as server:
        admin, user = add_key(server.run_dir, "ops", Role.ADMIN), add_key(server.run_dir, "team-a")
        loud = add_key(server.run_dir, "loud")
        with prometheus(tmp_path / "prometheus", server.url, key=admin) as watching, load(server, user):
            flood(server, loud)
            be_cut(server)
            watching.wait("rate(tardigrade_output_tokens_total[30s]) > 0")
            for query in (query for page in PAGES for query in page.queries):
                assert watching.wait(asked(query))
            assert {one["metric"]["replica"] for one in watching.ask("tardigrade_breaker_state")} == {
                "scheduler/0",
                "scheduler/1",
            }
        text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {admin}"}).text
    documented = {row.name.removesuffix("_total") for rows in metrics_by_role().values() for row in rows}
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {name for name in families if not name.startswith("vllm:")} <= documented
