"""A real server, a real Prometheus and a real Alertmanager: a gang that is killed reaches the operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.monitoring.programs import WebHook, alertmanager, prometheus
from tests.support.monitoring.rules import FOLDER, alert_rules
from tests.support.real_server import real_server

pytestmark = pytest.mark.long

_MOST_S = 10.0  # from the kill to the web hook


@pytest.fixture
def hook() -> Iterator[WebHook]:
    hook = WebHook()
    yield hook
    hook.close()


def test_a_killed_gang_is_told(tmp_path: Path, hook: WebHook, record_property: Any) -> None:
    with (
        real_server("--model", "hash-chain") as server,
        alertmanager(tmp_path / "alertmanager", hook) as manager,
        prometheus(tmp_path / "prometheus", server.url, manager) as watching,
    ):
        watching.wait('tardigrade_deaths_total{actor="worker/0.0"}')
        killed_s = time.monotonic()
        server.kill("worker/0.0")
        told = hook.wait("TardigradeGangDied", _MOST_S, actor="worker/0.0", cause="killed")
        record_property("told_after_s", round(told.at_s - killed_s, 2))
        print(f"told after {told.at_s - killed_s:.2f} s")
        assert told.at_s - killed_s <= _MOST_S
        assert told.annotations == alert_rules()[told.name].annotations_of(told.labels)


def test_waits_on_the_way_to_the_operator_are_short() -> None:
    """Neither the death nor the programs wait for anything else: the supervisor tells of it with the next scrape."""
    prometheus_file: Any = msgspec.yaml.decode((FOLDER / "prometheus.yml").read_bytes())
    manager_file: Any = msgspec.yaml.decode((FOLDER / "alertmanager.yml").read_bytes())
    times, route = prometheus_file["global"], manager_file["route"]
    waits = [times["scrape_interval"], times["scrape_timeout"], times["evaluation_interval"], route["group_wait"]]
    waits.append(alert_rules()["TardigradeGangDied"].for_)
    assert sum(float(wait.removesuffix("s")) for wait in waits) < _MOST_S
