"""The alert rules of ops/prometheus, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parents[3] / "ops" / "prometheus"
RULES = FOLDER / "tardigrade.rules.yml"


class AlertRule(msgspec.Struct, frozen=True):
    """One rule. `for_`: how long its expression must hold, as Prometheus writes it."""

    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]
    for_: str = msgspec.field(default="0s", name="for")

    def annotations_of(self, labels: dict[str, str]) -> dict[str, str]:
        """The annotations of an alert with these labels: our rules put in labels and nothing else."""
        shown = dict(self.annotations)
        for name, value in labels.items():
            shown = {key: text.replace(f"{{{{ $labels.{name} }}}}", value) for key, text in shown.items()}
        return shown


class _Group(msgspec.Struct, frozen=True):
    name: str
    rules: list[AlertRule]


class _File(msgspec.Struct, frozen=True):
    groups: list[_Group]


def alert_rules() -> dict[str, AlertRule]:
    """All rules by the names of their alerts."""
    read: Any = msgspec.yaml.decode(RULES.read_bytes(), type=_File)
    return {rule.alert: rule for group in read.groups for rule in group.rules}
