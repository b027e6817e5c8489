"""Guards of the product that are taken away one at a time, to see whether the simulation notices.

`python -m tests.support.simulation.mutations [SEEDS]` runs so many seeds without each guard and counts those that notice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from actors.gateway.journal import frames
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.coalescing import Coalescing
from actors.gateway.lifecycle.step_publisher import StepPublisher
from actors.gateway.takeover.resumed_connection import Remainder
from actors.pages.seal_table import SealTable
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.step_tracker import StepTracker
from actors.scheduler.planning.tiers.runs_ahead import RunsAhead
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence
from gpu_workers.disk import disk_file
from gpu_workers.hash_chain_engine import HashChainEngine
from messages.lifecycle.lifecycle import Cause
from messages.transport.arrivals import ArrivalKind, Arrivals
from messages.wire.envelope import Envelope
from supervisor.children.child_manager import ChildManager
from supervisor.directories import rendezvous
from supervisor.operator.tree_commands import TreeCommands
from supervisor.policy import liveness
from tests.support.simulation.world import simulate


def _submit_anew(scheduler: SchedulerActor, delivery: Any, submit: Any, honest: Any = SchedulerActor.on_submit) -> None:
    with patch.object(SequenceQueues, "find", lambda queues, gateway, attempt: None):
        honest(scheduler, delivery, submit)


def _publish_first(publisher: StepPublisher, rows: Any, ack: Any) -> None:
    record = rows.record()
    publisher._publish(rows, ack)
    if record:
        publisher._journal.step(record, lambda: None)


def _keep_memory(gang: GangView, cause: Cause, is_last: bool, honest: Any = GangView.rank_died) -> Any:
    with patch.object(GangView, "_drop_memory", lambda gang: None):
        found = honest(gang, cause, is_last)
    gang._memory.is_suspect = False
    return found


def _keep_all(sequence: Sequence, n_kept: int, unsealed: Any, honest: Any = Sequence.interrupt) -> list[int]:
    return honest(sequence, min(sequence.planned, sequence.known - 1), unsealed)


def _forget_run(ahead: RunsAhead, load: Any, ledger: Any) -> None:
    ahead._runs = {number: run for number, run in ahead._runs.items() if run.load is not load}


def _any_number(arrivals: Arrivals, envelope: Envelope, route: bytes, honest: Any = Arrivals.note) -> ArrivalKind:
    honest(arrivals, envelope, route)
    return ArrivalKind.NEXT


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "a Submit that comes again is a new sequence": (SchedulerActor, "on_submit", _submit_anew),
    "a Result of an earlier epoch counts": (StepTracker, "is_current", lambda tracker, epoch: True),
    "tokens are shown before they are recorded": (StepPublisher, "record", _publish_first),
    "memory of a faulty device is kept": (GangView, "rank_died", _keep_memory),
    "what lost steps were to compute is kept": (Sequence, "interrupt", _keep_all),
    "pages are not copied": (HashChainEngine, "_copy_pages", lambda engine, copies: None),
    "a page's record is not erased before it is overwritten": (SealTable, "erase", lambda table, page: None),
    "a response that goes on begins again": (Remainder, "push", lambda remainder, data: data),
    "messages count in any order and number": (Arrivals, "note", _any_number),
    "the next supervisor adopts nobody": (ChildManager, "adopt", lambda children: []),
    "a frame of the journal needs no checksum": (frames, "_checksum", lambda facts, payload, salt: bytes(8)),
    "a command dies with its supervisor": (TreeCommands, "resume", lambda commands: None),
    "incarnations begin at 1 in each server": (rendezvous, "read_newest", lambda path, decode: None),
    "a pause of the supervisor counts as silence of the others": (liveness, "_OVERSLEPT", float("inf")),
    "requests that followed another one are not submitted when it leaves": (Coalescing, "leave", lambda *args, **options: []),
    "a place of the disk gives whatever it has": (disk_file, "names", lambda *facts: True),
    "results of a run ahead of its load count at once": (RunsAhead, "is_in", lambda ahead, planned: False),
    "a run ahead goes on after its load has failed": (RunsAhead, "end", _forget_run),
    "endings are not in the journal": (Journal, "finish", lambda journal, *args, **options: None),
}


def noticed(name: str, seeds: range, run: Callable[[int], Any] = simulate) -> list[int]:
    """The seeds that show a problem without this guard."""
    owner, attribute, instead = MUTATIONS[name]
    with patch.object(owner, attribute, instead):
        return [seed for seed in seeds if run(seed).problems]


def main(argv: list[str]) -> int:
    """Returns 1 if a guard can be taken away unnoticed."""
    n_seeds = int(argv[0]) if argv else 40
    n_unnoticed = 0
    for name in MUTATIONS:
        found = noticed(name, range(n_seeds))
        n_unnoticed += not found
        print(f"{len(found):4} of {n_seeds} seeds notice: {name}", flush=True)
    return 1 if n_unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
