"""How long the phases of a start have taken, as the log says it when the child is ready."""

from __future__ import annotations

from supervisor.children.child_record import ChildRecord
from tests.support.supervisor.trees import group


def test_each_phase_lasts_until_the_next_one_or_until_the_child_is_ready() -> None:
    record = ChildRecord(group("worker/0.0").children[0])
    record.note_loading("weights", 0.0, 10.0)
    record.note_loading("weights", 0.5, 11.0)
    record.note_loading("warm up", 0.0, 12.5)
    assert (record.phase, record.heard_s) == ("warm up 0%", 12.5)
    assert record.phases_s(13.0) == {"weights": 2.5, "warm up": 0.5}


def test_a_child_without_phases_has_none() -> None:
    assert ChildRecord(group("vault/0").children[0]).phases_s(1.0) == {}
