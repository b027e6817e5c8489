"""Draws the table of alerts (docs/monitoring.md) from the rules for Prometheus, and that of faults beside it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from ops.fault_guide import FAULTS

_RULES = Path(__file__).parent / "prometheus" / "tardigrade.rules.yml"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_ANY = {
    "actor": "an actor",
    "replica": "a replica",
    "tenant": "a tenant",
    "gpu": "N",
    "why": "the reason",
}  # in the place of a label's value


def alerts_table() -> str:
    """One row for each alert, in the order of the file."""
    lines = ["| alert | it means | where the cause is told | what to do |", "|---|---|---|---|"]
    for name, texts in _annotations().items():
        lines.append(f"| `{name}` | {texts['summary']} | {texts['look']} | {texts['repair']} |")
    return "\n".join(lines)


def faults_table() -> str:
    """One row for each fault, with the repair that its alert names."""
    known = _annotations()
    lines = ["| fault | page | log line, and what shows it | metric | alert | what to do |", "|---|---|---|---|---|---|"]
    for one in FAULTS:
        metric = one.metric.replace("|", "\\|")
        name, value = one.field
        log = f"`{one.log}{f', {name}={value}' if name else ''}`" if one.log else "none, but this shows the cause"
        log = f"{log}: `{one.command}`"
        lines.append(f"| {one.fault} | {one.page} | {log} | `{metric}` | `{one.alert}` | {known[one.alert]['repair']} |")
    return "\n".join(lines)


def _annotations() -> dict[str, dict[str, str]]:
    """The annotations by alert, with words in the place of the values of labels."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    return {
        rule["alert"]: {key: _without_labels(text) for key, text in rule["annotations"].items()}
        for group in groups
        for rule in group["rules"]
    }


def _without_labels(text: str) -> str:
    text = _LABEL.sub(lambda label: _ANY.get(label[1], f"the {label[1]}"), text)
    return text[:1].upper() + text[1:] if text.startswith(tuple(_ANY.values())) else text
