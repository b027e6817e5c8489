"""Each alert is raised by what it is about, and by nothing before: `promtool test rules` evaluates them over made-up series."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.monitoring.rules import FOLDER, RULES, alert_rules

pytestmark = pytest.mark.long

_WORKER, _GATEWAY, _SCHEDULER = 'actor="worker/0.0"', 'actor="gateway/0"', 'actor="scheduler/0"'
_INSTANCE = "host:8000"
_STANDSTILL = {"running": (1, 0.0), "steps_total": (9, 0)}
_GOOD_S, _END_S, _STEP_S = 600, 1200, 5  # all is well, then it is not


@dataclass(frozen=True)
class Case:
    """`series`: by name and labels, the value or the growth for each step while all is well, and afterwards. `labels`: those of
    the alert, beside its severity."""

    alert: str
    series: dict[str, tuple[float, float]]
    labels: dict[str, str]
    grows: bool = False

    def input_series(self) -> list[dict[str, str]]:
        n_good, n_bad = _GOOD_S // _STEP_S, (_END_S - _GOOD_S) // _STEP_S
        found = []
        for series, (good, bad) in self.series.items():
            name, _, rest = series.partition("{")
            labels = ", ".join(filter(None, [f'instance="{_INSTANCE}"', 'job="tardigrade"', rest.rstrip("}")]))
            values = f"{good}x{n_good} {bad}x{n_bad}"
            if self.grows:
                values = f"0+{good}x{n_good} {good * n_good + bad}+{bad}x{n_bad}"
            found.append({"series": f"{name}{{{labels}}}", "values": values})
        return found


def _gauge(alert: str, series: str, good: float, bad: float, **labels: str) -> Case:
    return Case(alert, {series: (good, bad)}, {"job": "tardigrade", **labels})


def _deaths(alert: str, actor: str, cause: str, labels: dict[str, str]) -> Case:
    series = f'tardigrade_deaths_total{{actor="{actor}", cause="{cause}"}}'
    return Case(alert, {series: (0, 0.05)}, {"actor": actor, **labels}, grows=True)


CASES = [
    _gauge("TardigradeDown", "up", 1, 0),
    _gauge("TardigradeActorDown", f"tardigrade_up{{{_GATEWAY}}}", 1, 0, actor="gateway/0"),
    _gauge("TardigradeRetired", f"tardigrade_retired{{{_WORKER}}}", 0, 1, actor="worker/0.0"),
    _deaths("TardigradeGangDied", "worker/0.0", "killed", {"cause": "killed"}),
    _deaths("TardigradeActorFrozen", "gateway/0", "hung", {}),
    _deaths("TardigradeOutOfMemory", "worker/0.0", "out_of_memory", {}),
    _gauge("TardigradeOutOfFiles", f"tardigrade_out_of_files{{{_GATEWAY}}}", 0, 1, actor="gateway/0"),
    _gauge("TardigradeJournalRefused", f"tardigrade_journal_healthy{{{_GATEWAY}}}", 1, 0, actor="gateway/0"),
    Case(
        "TardigradeStandstill",
        {f"tardigrade_scheduler_{name}{{{_SCHEDULER}}}": growth for name, growth in _STANDSTILL.items()},
        {"job": "tardigrade", "actor": "scheduler/0"},
        grows=True,
    ),
    Case(
        "TardigradeRequestsFail",
        {'tardigrade_requests_total{ending="stop"}': (90, 90), 'tardigrade_requests_total{ending="failed"}': (0, 10)},
        {},
        grows=True,
    ),
    Case("TardigradePoison", {'tardigrade_requests_total{ending="quarantined"}': (0, 0.01)}, {}, grows=True),
    Case(
        "TardigradeSlowFirstToken",
        {
            'tardigrade_time_to_first_token_seconds_bucket{le="5.0"}': (10, 0),
            'tardigrade_time_to_first_token_seconds_bucket{le="10.0"}': (10, 10),
            'tardigrade_time_to_first_token_seconds_bucket{le="+Inf"}': (10, 10),
        },
        {},
        grows=True,
    ),
    Case("TardigradeOverloaded", {'tardigrade_overload_refusals_total{why="shed"}': (0, 1)}, {"why": "shed"}, grows=True),
    Case(
        "TardigradeTenantFlood",
        {'tardigrade_tenant_refused_total{tenant="a", limit="requests_per_min"}': (0, 10)},
        {"tenant": "a", "limit": "requests_per_min"},
        grows=True,
    ),
    Case("TardigradeSlowClients", {'tardigrade_http_cut_total{why="unread"}': (0, 0.01)}, {}, grows=True),
    Case(
        "TardigradeReplicaAvoided",
        {'tardigrade_breaker_openings_total{replica="scheduler/1", why="died"}': (0, 0.01)},
        {"replica": "scheduler/1"},
        grows=True,
    ),
    Case(
        "TardigradeLinkLost",
        {
            f'tardigrade_links_lost_total{{{_GATEWAY}, direction="to"}}': (0, 0.01),
            f'tardigrade_links_lost_total{{{_GATEWAY}, direction="from"}}': (0, 0),
        },
        {"actor": "gateway/0"},
        grows=True,
    ),
    Case(
        "TardigradeCacheFull",
        {f"tardigrade_scheduler_preemptions_total{{{_SCHEDULER}}}": (0, 10)},
        {"job": "tardigrade", "actor": "scheduler/0"},
        grows=True,
    ),
    _gauge("TardigradeCertificateExpires", "tardigrade_certificate_expires_seconds", 1e9, 86_400),
    _gauge("TardigradeGpuUnreadable", 'tardigrade_gpu_readable{gpu="1"}', 1, 0, gpu="1"),
    Case(
        "TardigradeGpuErrors",
        {'tardigrade_gpu_ecc_errors_total{gpu="1", kind="uncorrected"}': (0, 1)},
        {"job": "tardigrade", "gpu": "1", "kind": "uncorrected"},
        grows=True,
    ),
    Case(
        "TardigradeGpuSlowed", {'tardigrade_gpu_slow{gpu="1", reason="heat"}': (0, 1)}, {"gpu": "1", "reason": "heat"}
    ),
]  # fmt: skip


def _promtool() -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool: make monitoring-env installs it")
    return program


def _test_of(case: Case) -> dict[str, Any]:
    """A test of promtool: nothing while all is well, the alert at the end."""
    rule = alert_rules()[case.alert]
    labels = {"instance": _INSTANCE, **case.labels}
    expected = {"exp_labels": {**labels, **rule.labels}, "exp_annotations": rule.annotations_of(labels)}
    return {
        "interval": f"{_STEP_S}s",
        "input_series": case.input_series(),
        "alert_rule_test": [
            {"eval_time": f"{_GOOD_S - 60}s", "alertname": case.alert, "exp_alerts": []},
            {"eval_time": f"{_END_S}s", "alertname": case.alert, "exp_alerts": [expected]},
        ],
    }


def test_each_alert_has_a_case() -> None:
    assert sorted(case.alert for case in CASES) == sorted(alert_rules())
    for rule in alert_rules().values():
        assert rule.labels.keys() == {"severity"}
        assert rule.annotations.keys() == {"summary", "look", "repair"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_is_raised_by_its_cause_alone(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "rules.test.json"  # JSON is YAML, too
    tests = {"rule_files": [str(RULES)], "evaluation_interval": f"{_STEP_S}s", "tests": [_test_of(case)]}
    file.write_bytes(msgspec.json.encode(tests))
    checked = subprocess.run([_promtool(), "test", "rules", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_configurations_are_valid() -> None:
    for command in (
        [_promtool(), "check", "config", str(FOLDER / "prometheus.yml")],
        ["amtool", "check-config", str(FOLDER / "alertmanager.yml")],
    ):
        checked = subprocess.run(command, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
