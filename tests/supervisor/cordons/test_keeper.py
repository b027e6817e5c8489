"""Cordons: who is told, what is refused, what the next supervisor and every new gateway know, and when a replica is idle."""

from __future__ import annotations

import time
from pathlib import Path

import click
import pytest

from messages.lifecycle.cordon import Cordon, Cordons, CordonWanted
from messages.lifecycle.lifecycle import Progress
from messages.lifecycle.tree import ChildState
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.cordons.command import ReplicaName
from supervisor.cordons.keeper import CordonKeeper
from supervisor.directories.saved_state import SavedStateFile
from tests.support.supervisor.trees import group

NAMES = ("worker/0.0", "worker/1.0", "scheduler/0", "scheduler/1", "gateway/0", "gateway/1")


class RecordedChildren:
    """Stands for the child manager of a server of two replicas, or of other children."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        self.records = [ChildRecord(group(name).children[0], state=ChildState.READY, incarnation=1) for name in names]
        self.record_by_name = {record.name: record for record in self.records}
        self.cordons: list[Cordon] = []
        self.sent: list[tuple[str, Message]] = []

    def send(self, record: ChildRecord, message: Message) -> None:
        self.sent.append((record.name, message))


def keeper_of(children: RecordedChildren, path: Path) -> CordonKeeper:
    return CordonKeeper(children, SavedStateFile(path))  # type: ignore[arg-type]


def wanted(replica: int, *, is_cordoned: bool = True, is_draining: bool = False) -> CordonWanted:
    return CordonWanted(reply_to="", replica=replica, is_cordoned=is_cordoned, is_draining=is_draining, deadline_s=5.0)


def test_gateways_are_told_all_cordons_and_the_next_supervisor_knows_them(tmp_path: Path) -> None:
    children = RecordedChildren()
    keeper = keeper_of(children, tmp_path / "state")
    children.record_by_name["gateway/1"].state = ChildState.ADOPTED  # its Welcome is to come
    assert keeper.carry_out(wanted(1)) == ""
    assert children.sent == [("gateway/0", Cordons(cordons=[Cordon(replica=1)]))]
    assert [keeper.text(name) for name in ("worker/1.0", "scheduler/1", "scheduler/0", "gateway/1")] == ["cordoned"] * 2 + [
        ""
    ] * 2
    successor = RecordedChildren()
    keeper_of(successor, tmp_path / "state")
    assert successor.cordons == [Cordon(replica=1)]
    assert keeper.carry_out(wanted(1, is_cordoned=False)) == ""
    assert (children.cordons, keeper.text("scheduler/1")) == ([], "")


def test_the_last_replica_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    keeper = keeper_of(RecordedChildren(), tmp_path / "state")
    assert "expected one of 0, 1, got 2" in keeper.carry_out(wanted(2))
    assert keeper.carry_out(wanted(0)) == ""
    assert keeper.carry_out(wanted(1)).endswith("another replica of its model is in use, got 1; uncordon one first")
    assert keeper.carry_out(wanted(0, is_draining=True)) == "", "the same one again, now to be drained"


def test_a_fallback_model_does_not_stand_in_for_the_last_replica_of_the_main_one(tmp_path: Path) -> None:
    children = RecordedChildren((*NAMES, "worker/1000.0", "scheduler/1000"))
    keeper = keeper_of(children, tmp_path / "state")
    assert "expected one of 0, 1, 1000, got 2" in keeper.carry_out(wanted(2))
    assert keeper.carry_out(wanted(1000)).endswith("of its model is in use, got 1000"), "nothing can be uncordoned"
    assert keeper.carry_out(wanted(1)) == ""
    assert "another replica of its model is in use, got 0; uncordon one first" in keeper.carry_out(wanted(0))


def test_a_replica_is_idle_when_its_scheduler_says_so_after_the_gateways_know(tmp_path: Path) -> None:
    children = RecordedChildren()
    keeper = keeper_of(children, tmp_path / "state")
    record = children.record_by_name["scheduler/1"]
    keeper.carry_out(wanted(1, is_draining=True))
    assert children.cordons[0].end_s == pytest.approx(time.monotonic() + 5.0, abs=60.0)
    for heard_s, running, text in ((0.0, 0, "draining"), (10.0, 2, "draining"), (10.0, 0, "idle")):
        record.last = Progress(steps=1, busy_s=0.0, statistics={"running": running, "waiting": 0}, metrics=[])
        record.heard_s = keeper._changed_s + heard_s
        assert keeper.text("scheduler/1") == f"cordoned, {text}"


@pytest.mark.parametrize("name", ["1", "scheduler/1", "worker-gang/1", "gang/1", "worker/1.0", "worker/1.3b", "replica/1"])
def test_a_replica_has_many_names(name: str) -> None:
    assert ReplicaName().convert(name, None, None) == 1


@pytest.mark.parametrize("name", ["", "gateway/1", "-1", "scheduler/", "worker/1", "1.0"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(click.BadParameter, match="scheduler/N"):
        ReplicaName().convert(name, None, None)
