"""What waits at the gateways, and what they leave out because of it, in a line for the status table."""

from __future__ import annotations

from messages.generation.replica_load import DegradationLevel
from messages.ids import role_of
from messages.lifecycle.tree import StatusReport

_LEFT_OUT = {
    DegradationLevel.NO_DRAFTS: "no drafts",
    DegradationLevel.FEWER_ANSWERS: "fewer answers to a prompt",
    DegradationLevel.SHORTER_ANSWERS: "shorter answers",
    DegradationLevel.SHEDDING: "new work is refused",
}


def load_lines(report: StatusReport) -> list[str]:
    """The highest level of degradation of the gateways; [] while all are at level 0."""
    told = [child.statistics for child in report.children if role_of(child.name) == "gateway"]
    level = DegradationLevel(int(max((one.get("degradation_level", 0.0) for one in told), default=0.0)))
    if level is DegradationLevel.NORMAL:
        return []
    n_tokens, wait_s = sum(one.get("queued_tokens", 0.0) for one in told), max(one.get("expected_wait_s", 0.0) for one in told)
    measures = ", ".join(text for one, text in _LEFT_OUT.items() if one <= level)
    return [f"degradation: level {int(level)} ({measures}); {n_tokens:,.0f} tokens wait, about {wait_s:,.0f} s"]
