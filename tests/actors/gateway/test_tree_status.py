"""The gateway asks the supervisor for the state of the server: once for many readers, and for at most a second."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.gateway import tree_status
from actors.gateway.tree_status import TreeStatus
from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, StatusWanted, TreeState
from messages.metrics import take_snapshot
from messages.wire.message import Message


def registry_of(value: float) -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("things", "Some things.", registry=registry).set(value)
    return registry


def report_of(uptime_s: float, **things: float) -> StatusReport:
    children = [
        ChildStatus(
            name=name,
            incarnation=1,
            pid=1,
            state=ChildState.READY,
            phase="",
            restarts=0,
            uptime_s=1.0,
            beat_age_s=0.0,
            steps=0,
            busy_s=0.0,
            statistics={},
            metrics=take_snapshot(registry_of(value)),
        )
        for name, value in things.items()
    ]
    return StatusReport(state=TreeState.SERVING, uptime_s=uptime_s, model="m", url="u", children=children)


async def test_many_readers_are_one_question_and_all_get_its_answer() -> None:
    sent: list[Message] = []
    tree = TreeStatus("ipc://me", sent.append)
    readers = [asyncio.ensure_future(tree.wait_report()) for _ in range(3)]
    await asyncio.sleep(0)
    assert sent == [StatusWanted(reply_to="ipc://me", metrics=True)]
    tree.on_report(report_of(1.0))
    assert await asyncio.gather(*readers) == [report_of(1.0)] * 3
    later = asyncio.ensure_future(tree.wait_report())
    await asyncio.sleep(0)
    assert len(sent) == 2, "a later reader asks again"
    tree.on_report(report_of(2.0))
    assert await later == report_of(2.0)


async def test_readers_within_a_second_share_an_answer_if_they_take_an_older_one() -> None:
    sent: list[Message] = []
    tree = TreeStatus("ipc://me", sent.append)
    first = asyncio.ensure_future(tree.wait_report(oldest_s=3600.0))
    await asyncio.sleep(0)
    tree.on_report(report_of(1.0))
    assert await first == await tree.wait_report(oldest_s=3600.0) == report_of(1.0)
    assert len(sent) == 1
    later = asyncio.ensure_future(tree.wait_report(oldest_s=1e-9))
    await asyncio.sleep(0)
    assert len(sent) == 2, "the answer is too old"
    tree.on_report(report_of(2.0))
    assert await later == report_of(2.0)


async def test_a_silent_supervisor_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_status, "_WAIT_S", 0.001)
    tree = TreeStatus("ipc://me", lambda message: None)
    assert await tree.wait_report() is None
    tree.on_report(report_of(1.0))
    assert await tree.wait_report() == report_of(1.0), "the last answer"


async def test_a_reader_that_leaves_is_forgotten() -> None:
    sent: list[Message] = []
    tree = TreeStatus("ipc://me", sent.append)
    reader = asyncio.ensure_future(tree.wait_report())
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    tree.on_report(report_of(1.0))
    other = asyncio.ensure_future(tree.wait_report())
    await asyncio.sleep(0)
    assert len(sent) == 2, "nobody waits any more for the first answer"
    tree.on_report(report_of(2.0))
    assert await other == report_of(2.0)


async def test_the_exposition_has_this_gateway_as_of_now_and_the_others_as_reported() -> None:
    tree = TreeStatus("ipc://me", lambda message: None)
    assert b'things{actor="gateway"} 5.0' in tree.render("gateway", registry_of(5))
    tree.on_report(report_of(1.0, gateway=1, worker=2))
    lines = tree.render("gateway", registry_of(6)).splitlines()
    things = [line for line in lines if line.startswith(b"things")]
    assert things == [
        b'things{actor="gateway"} 6.0',
        b'things{actor="worker"} 2.0',
    ]


async def test_what_the_supervisor_alone_knows_of_the_gateway_that_answers_is_shown() -> None:
    """Its deaths and restarts. What it knows itself is shown as of now, not as of its last heartbeat."""
    tree, registry = TreeStatus("ipc://me", lambda message: None), registry_of(1.0)
    Counter("deaths", "As the supervisor counts them.", registry=registry).inc(2)
    report = report_of(1.0, me=1.0, other=3.0)
    counted = msgspec.structs.replace(report.children[0], metrics=take_snapshot(registry))
    tree.on_report(msgspec.structs.replace(report, children=[counted, *report.children[1:]]))
    lines = tree.render("me", registry_of(7.0)).decode().splitlines()
    assert [line for line in lines if line.startswith("things")] == ['things{actor="me"} 7.0', 'things{actor="other"} 3.0']
    assert [line for line in lines if line.startswith("deaths_total")] == ['deaths_total{actor="me"} 2.0']
