"""The status table says which level of degradation a server has."""

from __future__ import annotations

import msgspec
import pytest

from messages.lifecycle.tree import StatusReport, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.operator.load_lines import load_lines
from supervisor.operator.status_table import status_text
from tests.support.supervisor.trees import group


def with_levels(*levels: float) -> StatusReport:
    """A server with gateways that have these levels."""
    told = [{"degradation_level": level, "queued_tokens": 900.0, "expected_wait_s": 10.0 * level} for level in levels]
    gateways = [
        msgspec.structs.replace(ChildRecord(group(f"gateway/{at}").children[0]).status(0.0, with_metrics=False), statistics=one)
        for at, one in enumerate(told)
    ]
    return StatusReport(TreeState.SERVING, 1.0, "m", "u", gateways)


def test_a_server_that_leaves_nothing_out_has_no_line() -> None:
    assert load_lines(with_levels(0.0, 0.0)) == load_lines(with_levels()) == []


@pytest.mark.parametrize(
    ("level", "measures"),
    [(1.0, "no drafts"), (4.0, "no drafts, fewer answers to a prompt, shorter answers, new work is refused")],
)
def test_the_highest_level_of_a_gateway_is_shown_with_what_it_leaves_out(level: float, measures: str) -> None:
    shown = with_levels(0.0, level)
    [line] = load_lines(shown)
    assert line == f"degradation: level {level:g} ({measures}); 1,800 tokens wait, about {10 * level:.0f} s"
    assert line in status_text(shown, 240)
