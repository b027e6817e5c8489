"""Orderly shutdown: refuse new requests, finish the accepted ones, then stop all processes, last started first.

    drain      gateways refuse new requests and finish those they have;
               if one dies, its next incarnation finishes them             at most drain_s
    stop       role by role, in reverse start order: Stop to children that read their inbox, SIGKILL to those that do not
               yet; one that is stopped from outside is told to go on;
               a child that has not ended after stop_s is killed           at most stop_s a role
    force      every child is killed at once

Each step has a deadline, and the next one follows in any case. Nothing here decides about restarts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby

import structlog

from messages.ids import role_of
from messages.lifecycle.lifecycle import Drain, Stop
from messages.lifecycle.tree import ChildState
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.policy.draining import DrainEnd, DrainWatch

CLOSED_STATES = (ChildState.DRAINING, ChildState.DRAINED)  # of a gateway that takes no new requests
JOURNAL_REFUSES = "journal_refuses"  # in the statistics of a gateway whose journal cannot be written
_HAND_OVER_S = 5.0  # for a gateway to hand over and end; then it is killed
_PROOF_S = 5.0  # a killed process that lives longer hangs in a device driver


def gateways(children: ChildManager) -> list[ChildRecord]:
    """The children that own requests."""
    return [record for record in children.records if role_of(record.name) == "gateway"]


def ask_to_drain(children: ChildManager, record: ChildRecord, deadline_s: float) -> None:
    """Tell a gateway to refuse new requests and finish the others within `deadline_s`. Does nothing if it is not ready."""
    if record.state is ChildState.READY:
        record.enter(ChildState.DRAINING)
        children.send(record, Drain(deadline_s=deadline_s))


async def drain(children: ChildManager, watch: DrainWatch) -> DrainEnd:
    """Drain every gateway and wait until the drain is over; returns how it ended."""

    def drain_end() -> DrainEnd | None:
        return watch.result([record.state for record in gateways(children)], time.monotonic())

    left_s = watch.left_s(time.monotonic())
    for record in gateways(children):
        ask_to_drain(children, record, left_s)
    await children.wait_until(lambda: drain_end() is not None, left_s)
    return drain_end() or DrainEnd.LATE


async def hand_over(children: ChildManager, records: list[ChildRecord]) -> None:
    """Replace gateways by their next incarnations, which go on with all connections and requests and take new ones."""
    before = {record.name: record.incarnation for record in records}

    def old() -> list[ChildRecord]:
        return [record for record in records if record.is_alive and record.incarnation == before[record.name]]

    for record in records:
        if record.state in CLOSED_STATES:
            record.enter(ChildState.STOPPING)
            children.send(record, Stop(hand_over=True))
    if not await children.wait_until(lambda: not old(), _HAND_OVER_S):
        for record in old():
            children.kill(record, "did not hand over in time", "ended")


def requests_left(children: ChildManager) -> int:
    """Sequences that gateways had not finished at their last Progress."""
    return sum(int(record.last.statistics.get("active", 0)) for record in gateways(children) if record.last is not None)


def unwritten(records: Iterable[ChildRecord]) -> list[str]:
    """Names of the gateways among these that take requests or have some, and whose journal could not be written at their last
    Progress. What such a gateway has shown is not all in the journal, from which its next incarnation would go on."""
    busy = [record for record in records if record.state in (ChildState.READY, ChildState.DRAINING)]
    return [record.name for record in busy if record.last and record.last.statistics.get(JOURNAL_REFUSES)]


async def stop_in_order(children: ChildManager) -> bool:
    """Stop every child. Returns False when the death of some process could not be proven."""
    for _, groups in groupby(reversed(children.groups), lambda group: role_of(group.children[0].name)):
        members = [record for group in groups for record in children.members(group)]
        for record in members:
            if record.state is ChildState.STOPPING:
                continue  # a rolling restart has told it to end
            if record.is_reachable and record.state is not ChildState.WELCOMED:
                record.enter(ChildState.STOPPING)
                children.send(record, Stop())
                if record.process is not None:
                    record.process.resume()  # nobody replaces it any more if it is stopped from outside
            else:
                children.kill(record, "stopped before it was ready", "ended")
        await _wait_dead(children, members, max(record.spec.deadlines.stop_s for record in members))
        for record in members:
            children.kill(record, "did not end in time", "ended")
        await _wait_dead(children, members, _PROOF_S)
    return _report_survivors(children)


async def force(children: ChildManager) -> bool:
    """Kill every child. Returns False when the death of some process could not be proven."""
    for record in children.records:
        children.kill(record, "forced stop", "ended")
    await _wait_dead(children, children.records, _PROOF_S)
    return _report_survivors(children)


async def _wait_dead(children: ChildManager, records: list[ChildRecord], deadline_s: float) -> bool:
    return await children.wait_until(lambda: not any(record.is_alive for record in records), deadline_s)


def _report_survivors(children: ChildManager) -> bool:
    survivors = [record for record in children.records if record.is_alive]
    for record in survivors:
        pid = record.process.pid if record.process else 0
        structlog.get_logger().error("process not dead after SIGKILL", child=record.name, pid=pid)
    return not survivors
