"""Every expression of the dashboards is answered by a real Prometheus that scrapes a real server under load."""

from __future__ import annotations

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

_LIMITS = "[tenants.default]\ntokens_per_day = 1000000000\n"


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


def test_every_expression_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    stub.say(gpus=1, busy=87, watts=412, celsius=61, used=71_200_000_000)
    (tmp_path / "limits.toml").write_text(_LIMITS)
    flags = ("--model", "hash-chain", "--api-keys", "--config", str(tmp_path / "limits.toml"))
    with real_server(*flags, "--set", 'gpu_monitor.devices=["0"]') as server:
        admin, user = add_key(server.run_dir, "ops", Role.ADMIN), add_key(server.run_dir, "team-a")
        with prometheus(tmp_path / "prometheus", server.url, key=admin) as watching, load(server, user):
            watching.wait("rate(tardigrade_output_tokens_total[30s]) > 0")
            watching.wait("rate(tardigrade_scheduler_step_tokens_count[30s]) > 0")
            watching.wait("rate(tardigrade_worker_step_seconds_count[30s]) > 0")
            watching.wait("tardigrade_gpu_busy_ratio")
            watching.wait("tardigrade_tenant_tokens_today")
            for query in (query for page in PAGES for query in page.queries):
                series = watching.ask(asked(query))
                assert series or query.is_rare or "memory_clock" in query.expression, query.expression  # the stub has none
        text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {admin}"}).text
    documented = {row.name.removesuffix("_total") for rows in metrics_by_role().values() for row in rows}
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {name for name in families if not name.startswith("vllm:")} <= documented
