"""Every kind of message between actors is lost once, comes twice once, and comes late once: every answer ends right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import pytest

from messages.ids import role_of
from messages.routes import ROUTES
from messages.transport.mailbox import MemoryMailbox
from messages.transport.outbox import Outbox
from tests.support.depth import DEPTH
from tests.support.simulation import world
from tests.support.simulation.scenario import Scenario


class _Kind(msgspec.Struct):
    kind: str = ""


class Fate(Enum):
    """What happens to the first message of each kind between two roles."""

    LOST = "lost"
    TWICE = "twice"
    LATE = "late"


_SEEDS = (19, *range(2, 19), *range(20, 24))  # a rank seldom has time to say that it ends; with the first of these it has
_N_RUNS = 4 if DEPTH == 1 else 18  # at least
_LATE_S = 3.0  # the link has sent it again by then, perhaps over a new connection
_kind = msgspec.msgpack.Decoder(_Kind)


@dataclass
class Meddler:
    """Stands between the mailboxes. `met`: kind, sender and receiver, of what met the fate."""

    fate: Fate
    met: set[tuple[str, str, str]] = field(default_factory=set)

    def carry(self, honest: Callable[..., None], mailbox: MemoryMailbox, outbox: Outbox, frames: list[bytes]) -> None:
        """`MemoryMailbox._carry`."""
        kind = _kind.decode(frames[1]).kind if frames[1] else ""
        route = (kind, role_of(mailbox.name), role_of(outbox.peer))
        if not kind or route in self.met:
            honest(mailbox, outbox, frames)
            return
        self.met.add(route)
        if self.fate is Fate.LATE:
            asyncio.get_running_loop().call_later(_LATE_S, partial(self._late, honest, mailbox, outbox, frames))
        for _ in range(2 if self.fate is Fate.TWICE else 0):
            honest(mailbox, outbox, frames)

    @staticmethod
    def _late(honest: Callable[..., None], mailbox: MemoryMailbox, outbox: Outbox, frames: list[bytes]) -> None:
        if mailbox._is_open(outbox):
            honest(mailbox, outbox, frames)


def meddle(monkeypatch: pytest.MonkeyPatch, fate: Fate) -> Meddler:
    """Every mailbox of the simulation has this meddler."""
    meddler, honest = Meddler(fate), MemoryMailbox._carry

    def carry(mailbox: MemoryMailbox, outbox: Outbox, frames: list[bytes]) -> Any:
        meddler.carry(honest, mailbox, outbox, frames)

    monkeypatch.setattr(MemoryMailbox, "_carry", carry)
    return meddler


# Kinds that no simulated run sends for certain, and the tests in which they are lost.
ELSEWHERE = {
    "StatusWanted": "tests/actors/gateway/test_tree_status.py; operators' commands ask again five times a second",
    "StatusReport": "as StatusWanted",
    "DrainWanted": "operators' commands ask again",
    "ServeWanted": "operators' commands ask again",
    "StopWanted": "operators' commands ask again",
    "RestartWanted": "operators' commands ask again",
    "CommandTaken": "operators' commands ask again",
    "OrderTaken": "the last release sends it",
    "Adopt": "needs the death of a supervisor; a child that does not answer is killed as late",
    "Fault": "the last words of a process: its death says the same",
    "PrepareGrammar": "tests/actors/scheduler/test_slow_grammars.py: a question without an answer is asked again",
    "GrammarPrepared": "as PrepareGrammar",
    "MovePages": "tests/actors/scheduler/planning/test_host_tier.py: a load without an answer is given up",
    "PagesMoved": "as MovePages",
    "ReturnPages": "these pages keep their memory until the next epoch",
    "ReturnPlaces": "as ReturnPages",
    "PagesWanted": "tests/actors/scheduler/planning/exchange/test_moved_pages.py: silence of each is given up",
    "PagesLent": "as PagesWanted",
    "ExchangePages": "as PagesWanted",
    "PagesExchanged": "as PagesWanted",
    "MoveDiskPages": "tests/actors/scheduler/planning/test_disk_tier.py: a read without an answer is given up",
    "DiskPagesMoved": "as MoveDiskPages",
    "FindDiskPages": "tests/actors/scheduler/test_disk_contents.py: a question without an answer is asked again",
    "DiskPagesFound": "as FindDiskPages",
    "ForgetPages": "tests/simulation/caches/test_cache_resets.py: it is sent again until it is answered",
    "PagesForgotten": "as ForgetPages",
    "FindSimilar": "tests/actors/gateway/similar_answers: a request does not wait long for the answer, and is computed",
    "SimilarFound": "as FindSimilar",
    "KeepSimilar": "a similar question is computed",
    "AnswersKept": "tests/actors/gateway/answer_cache/test_shared_answers.py: an equal request is computed",
    "ForgetAnswers": "tests/simulation/caches/test_cache_resets.py: it is sent again until it is answered",
    "AnswersForgotten": "as ForgetAnswers",
    "StepFailed": "tests/actors/scheduler/gang/test_idleness.py",
    "Cancel": "tests/actors/gateway/dispatch/test_holdings.py: an attempt that is closed is cancelled again",
    "Recall": "what was not given back is not asked for again, and is computed where it is",
    "Cordons": "the supervisor sends all of them with each change; tests/supervisor/cordons/test_keeper.py",
    "CordonWanted": "operators' commands ask again",
    "Refused": "tests/actors/gateway/dispatch/test_holdings.py: an attempt that is lost is submitted again",
    "Embed": "tests/long/test_embedding_kills.py: a simulated server has no embedding model",
    "Embedded": "as Embed",
    "TakeAllowance": "tests/actors/gateway/tenants: a gateway decides alone; tests/simulation/test_tenants.py",
    "AllowanceTaken": "as TakeAllowance",
    "UsageTold": "tests/actors/accounts/test_two_sides.py: it is told again until it is on disk",
    "UsageNoted": "as UsageTold",
    "InventoryWanted": "the directory asks again with the next update that it misses",
    "PagesDropped": "the directory notices a gap in the numbers and asks for a snapshot",
    "Drafts": "drafts that do not come are not used",
}


def kinds_met(monkeypatch: pytest.MonkeyPatch, fate: Fate, seed: int) -> set[str]:
    """Run one seed in which the first message of each kind between two roles meets this fate; every promise must hold."""
    with monkeypatch.context() as patches:
        meddler = meddle(patches, fate)
        # a gang of two ranks, one of which fails: the other ends later, and the scheduler is told before that
        outcome = world.simulate(seed, Scenario(n_deaths=seed % 3, n_clients=8, tp=1 + seed % 2, n_device_faults=seed % 2))
    assert not outcome.problems, f"seed {seed}"
    return {kind for kind, _, _ in meddler.met}


@pytest.mark.seeds
@pytest.mark.parametrize("fate", Fate)
def test_every_kind_is_lost_repeated_and_late_once(fate: Fate, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {route.kind.__name__ for route in ROUTES} - ELSEWHERE.keys()
    met = set[str]()
    for n_done, seed in enumerate(_SEEDS):
        if n_done >= _N_RUNS and wanted <= met:  # a run without speculation, for example, does not send all kinds
            break
        met |= kinds_met(monkeypatch, fate, seed)
    assert wanted <= met
