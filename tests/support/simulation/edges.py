"""The points of a run at which a process touches the world outside of it, and the faults that are aimed at them.

    gets KIND            a message, before it is handled and after that; also of a ZeroMQ client
    sends KIND           a message; also to a ZeroMQ client, or to another gateway
    commits              entries of the journal; the process may also die in the middle of the write
    begins, ends a step  the engine of a rank; a step may also fail, hang or be refused
    begins, ends a load  copies of pages from the host tier, beside steps; see copies/
    ... a run ahead      what a scheduler does with a sequence that runs ahead of its load; see copies/runs_ahead.py
    writes a connection  bytes of an HTTP answer
    gives a descriptor   a packet to the custodian or the vault
    writes a file        the supervisor's own files
    spawns               the supervisor starts a process

A process that dies at an edge does nothing more: the exception `Died` leaves its callback. `Count` says which faults have hit
which edges.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from messages.routes import CHILDREN, ROUTES
from tests.support.simulation.virtual_loop import PROCESS, Died, LifeState, SimulatedLife

_PAUSE_S = (0.01, 4.0)
_LATEST = 12  # an aim waits for the edge to be reached so often


class Fault(Enum):
    """What happens to a process at an edge."""

    DIES_BEFORE = "dies before"
    DIES_DURING = "dies during"
    DIES_AFTER = "dies after"
    STOPS_BEFORE = "stops before"
    STOPS_AFTER = "stops after"
    FAILS = "fails"  # a step that raises an error after it has damaged memory
    HANGS = "hangs"  # a step that never ends
    REFUSES = "refuses"  # a plan, as a whole
    FLIPS = "flips"  # bits at a place of the host tier
    SHORTENS = "shortens"  # a load, which copies the first pages only
    EMPTIES = "empties"  # a place that a load names


Count = Counter[tuple[str, Fault]]
_NEVER = (
    *("Cordons", "Recall"),  # without an operator's command, and while no queue is long
    *("Fault", "StatusWanted", "StatusReport", "StepFailed"),  # not in a run without commands and bugs
    *("TakeAllowance", "AllowanceTaken", "UsageTold", "UsageNoted"),  # only servers with tenants; see faults/accounts.py
    *("Embed", "Embedded"),  # only servers with embedding clients have an embedder; see embedding.py
    *("ForgetPages", "PagesForgotten", "ForgetAnswers", "AnswersForgotten"),  # only in scenarios with resets of caches
    *("FindSimilar", "SimilarFound", "KeepSimilar"),  # there is no embedding model
    *("PrepareGrammar", "GrammarPrepared"),  # the hash chain follows no grammars
    *("Refused", "InventoryWanted"),  # what was asked for fits, and between living processes no update is lost
)
_ENTRY_ROLES = ("gateway", "supervisor")  # the hash chain has nothing to load, and only gateways are drained
_ROLES: dict[str, tuple[str, ...]] = dict.fromkeys(("Loading", "Drain", "Drained"), _ENTRY_ROLES)
# Messages at a gateway's public socket. A gateway sends those of a client and gets the others when it passes a stream on. It
# rarely passes on that a client leaves, and rarely refuses a request or passes a refusal on.
_RARELY = ("gateway sends CancelRequest", "gateway sends Failed", "gateway gets Failed")
_PUBLIC = ("AnswersWanted", "Received", "CancelRequest", "Accepted", "Chunk", "Finished", "Failed", "Alive")
OF_DEVICES = (Fault.FAILS, Fault.HANGS, Fault.REFUSES)  # for an edge "worker begins a step"
OF_LOADS = (Fault.FAILS, Fault.HANGS, Fault.FLIPS, Fault.SHORTENS, Fault.EMPTIES)  # for an edge "worker begins a load"
_SYNCHRONOUS = (Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.STOPS_AFTER)
_AWAITED = (Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.STOPS_BEFORE, Fault.STOPS_AFTER)


_OF_TIER = ("MovePages", "PagesMoved")
_OF_EXCHANGE = ("PagesWanted", "PagesLent", "ExchangePages", "PagesExchanged")
_OF_DISK = ("MoveDiskPages", "DiskPagesMoved", "FindDiskPages", "DiskPagesFound")
_OF_ANSWERS = ("AnswersKept",)
_OF_SIZING = ("ReturnPages",)
_OF_PLACES = ("ReturnPlaces",)
_OF_COPIES = (
    *("worker begins a load", "worker ends a load", "scheduler begins a run ahead", "scheduler proves a run ahead"),
    *("scheduler takes back a run ahead", "scheduler lets another wait for a run ahead", "scheduler has lost a run ahead"),
    *("scheduler gives up a run ahead", "scheduler forgets a run ahead"),
)


def _pairs() -> Iterator[tuple[str, Fault]]:
    roles = (*(role for role in CHILDREN if role not in ("accounts", "embedder", "gpu_monitor")), "supervisor")
    for route in ROUTES:
        kind = route.kind.__name__
        if kind in _NEVER:
            continue
        may = _ROLES.get(kind, roles)
        receivers = [role for role in route.receivers if role in may]
        senders = [role for role in route.senders if role in may]
        if receivers and senders:
            yield from ((f"{role} sends {kind}", fault) for role in senders for fault in _SYNCHRONOUS)
            yield from ((f"{role} gets {kind}", fault) for role in receivers for fault in _AWAITED)
    others = ("gateway writes a connection", "gateway gives a descriptor", "supervisor writes a file", "supervisor spawns")
    yield from ((edge, fault) for edge in (*others, "gateway commits", "worker begins a step") for fault in _SYNCHRONOUS)
    public = [f"gateway {verb} {kind}" for verb in ("gets", "sends") for kind in _PUBLIC]
    yield from ((edge, fault) for edge in public if edge not in _RARELY for fault in _SYNCHRONOUS)
    yield "gateway commits", Fault.DIES_DURING
    yield from (("worker begins a step", fault) for fault in OF_DEVICES)
    yield from (("worker ends a step", fault) for fault in _SYNCHRONOUS)
    yield from ((edge, fault) for edge in _OF_COPIES for fault in _SYNCHRONOUS)
    yield from (("worker begins a load", fault) for fault in OF_LOADS)


def _kind_of(pair: tuple[str, Fault]) -> str:
    return pair[0].rpartition(" ")[2]


_ALL = tuple(_pairs())
OF_TIER = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_TIER)  # only servers with a host tier reach these edges
OF_DISK = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_DISK)  # only servers with a disk tier too
OF_ANSWERS = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_ANSWERS)  # only gateways with an answer cache reach these
OF_EXCHANGE = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_EXCHANGE)  # only replicas that move pages reach these
OF_SIZING = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_SIZING)  # only servers with a least size reach these
OF_PLACES = tuple(pair for pair in _ALL if _kind_of(pair) in _OF_PLACES)  # only those whose host tier has a least size
OF_COPIES = tuple(pair for pair in _ALL if pair[0] in _OF_COPIES)  # only servers whose pages are copied beside steps
_SPECIAL = OF_TIER + OF_SIZING + OF_PLACES + OF_EXCHANGE + OF_DISK + OF_COPIES
_OF_ALL_SERVERS = tuple(pair for pair in _ALL if pair not in _SPECIAL)
PAIRS = _OF_ALL_SERVERS + _SPECIAL


def reachable_pairs(
    has_tier: bool, is_sized: bool, has_sized_tier: bool, has_disk: bool, has_copies: bool
) -> tuple[tuple[str, Fault], ...]:
    """The pairs that a server reaches which has these features or not."""
    of_tiers = OF_TIER * has_tier + OF_SIZING * is_sized + OF_PLACES * has_sized_tier + OF_DISK * has_disk
    return _OF_ALL_SERVERS + of_tiers + OF_COPIES * has_copies


@dataclass
class Aim:
    """A fault for the process that reaches an edge for the `nth` time from now on."""

    edge: str
    fault: Fault
    nth: int


class _Around:
    """What a process does at an edge, at once. A generator would cost three times as much, and each message is sent at one."""

    __slots__ = ("_edges", "_fault", "_what")

    def __init__(self, edges: Edges, what: str) -> None:
        self._edges, self._what = edges, what

    def __enter__(self) -> Fault | None:
        self._fault = fault = self._edges.reach(self._what)
        if fault is Fault.DIES_BEFORE:
            self._edges.die()
        return fault

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._fault is not None:
            self._edges.after(self._fault)


class Edges:
    """The edges of one run. `kill(life)` ends a process at once; `note_harm(role)` is told of each fault."""

    def __init__(self, chance: random.Random, kill: Callable[[SimulatedLife], None], note_harm: Callable[[str], None]) -> None:
        self._chance, self._kill, self._note_harm = chance, kill, note_harm
        self._aims: dict[str, list[Aim]] = {}
        self.reached: Counter[str] = Counter()
        self.hit: Count = Counter()

    def aim(self, edge: str, fault: Fault, nth: int | None = None) -> None:
        """Let this happen when the edge is reached for the `nth` time from now on, counted from 0; None: soon."""
        drawn = min(int(self._chance.expovariate(0.3)), _LATEST)
        self._aims.setdefault(edge, []).append(Aim(edge, fault, drawn if nth is None else nth))

    def reach(self, what: str) -> Fault | None:
        """The process that calls this is at an edge. Returns the fault that happens to it now."""
        life = PROCESS.get()
        if life is None or life.state is LifeState.DEAD:
            return None
        edge = f"{life.role} {what}"
        self.reached[edge] += 1
        for aim in self._aims.get(edge, ()):
            aim.nth -= 1
            if aim.nth < 0:
                self._aims[edge].remove(aim)
                self.hit[edge, aim.fault] += 1
                self._note_harm(life.role)
                return aim.fault
        return None

    def around(self, what: str) -> _Around:
        """Something that the process does at once. Entering it gives the fault. Raises: Died before or after it."""
        return _Around(self, what)

    async def before(self, what: str) -> Fault | None:
        """Something that the process is about to do. Returns what must happen afterwards. Raises: Died."""
        fault = self.reach(what)
        if fault is Fault.DIES_BEFORE:
            self.die()
        if fault is Fault.STOPS_BEFORE:
            self.stop()
            await asyncio.sleep(0)  # returns when the process continues
        return fault

    def after(self, fault: Fault | None) -> None:
        """It is done. Raises: Died."""
        if fault is Fault.DIES_AFTER:
            self.die()
        if fault is Fault.STOPS_AFTER:
            self.stop()

    def die(self) -> None:
        """End the process that calls this. Raises: Died."""
        life = PROCESS.get()
        assert life is not None
        self._kill(life)
        raise Died

    def stop(self) -> None:
        """Stop the process that calls this, after its present callback, for a while."""
        loop = asyncio.get_running_loop()
        loop.block(self._chance.uniform(*_PAUSE_S))  # type: ignore[attr-defined]
