"""The end in order: refuse new work, let the present work finish, then ask each group to leave, last started first.

    drain      gateways refuse new requests and finish those they have;
               the next life of one that dies meanwhile goes on            at most drain_s
    stop       group by group, in reverse start order: Stop to those who read their mail, a kill to those who do not yet;
               who has not left after stop_s is killed                     at most stop_s a group
    force      everybody is killed at once

Each step has a deadline and the next one follows in any case. Nothing here decides about restarts.
"""

from __future__ import annotations

import time

import structlog

from messages.ids import role_of
from messages.lifecycle import ChildState, Drain, Stop
from supervisor.children.child_record import ChildRecord
from supervisor.children.nursery import Nursery
from supervisor.policy.draining import DrainEnd, DrainWatch

_PROOF_S = 5.0  # a killed process that is still there after this hangs in its kernel driver


def gateways(nursery: Nursery) -> list[ChildRecord]:
    """Those who own requests."""
    return [record for record in nursery.records if role_of(record.name) == "gateway"]


def ask_to_drain(nursery: Nursery, record: ChildRecord, deadline_s: float) -> None:
    """One gateway takes nothing new from now on."""
    if record.state is ChildState.READY:
        record.enter(ChildState.DRAINING)
        nursery.tell(record, Drain(deadline_s=deadline_s))


async def drain(nursery: Nursery, watch: DrainWatch) -> DrainEnd:
    """Wait until every gateway says that nothing is left to finish, or until the watch says otherwise."""

    def verdict() -> DrainEnd | None:
        return watch.verdict([record.state for record in gateways(nursery)], time.monotonic())

    left_s = watch.left_s(time.monotonic())
    for record in gateways(nursery):
        ask_to_drain(nursery, record, left_s)
    await nursery.wait_until(lambda: verdict() is not None, left_s)
    return verdict() or DrainEnd.LATE


def requests_left(nursery: Nursery) -> int:
    """Sequences that gateways had not finished when they spoke last."""
    return sum(int(record.last.statistics.get("active", 0)) for record in gateways(nursery) if record.last is not None)


async def stop_in_order(nursery: Nursery) -> bool:
    """End everybody; False when some process could not be proven dead."""
    for group in reversed(nursery.groups):
        members = nursery.members(group)
        for record in members:
            if record.is_reachable and record.state is not ChildState.WELCOMED:
                record.enter(ChildState.STOPPING)
                nursery.tell(record, Stop())
            else:
                nursery.kill(record, "stopped before it was ready", "ended")
        await _wait_dead(nursery, members, max(record.spec.deadlines.stop_s for record in members))
        for record in members:
            nursery.kill(record, "did not leave in time", "ended")
        await _wait_dead(nursery, members, _PROOF_S)
    return _report_survivors(nursery)


async def force(nursery: Nursery) -> bool:
    """Kill everybody; False when some process could not be proven dead."""
    for record in nursery.records:
        nursery.kill(record, "forced stop", "ended")
    await _wait_dead(nursery, nursery.records, _PROOF_S)
    return _report_survivors(nursery)


async def _wait_dead(nursery: Nursery, records: list[ChildRecord], deadline_s: float) -> bool:
    return await nursery.wait_until(lambda: not any(record.is_alive for record in records), deadline_s)


def _report_survivors(nursery: Nursery) -> bool:
    survivors = [record for record in nursery.records if record.is_alive]
    for record in survivors:
        pid = record.process.pid if record.process else 0
        structlog.get_logger().error("not dead after SIGKILL", child=record.name, pid=pid)
    return not survivors
