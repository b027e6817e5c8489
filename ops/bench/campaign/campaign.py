"""A campaign against our own server: faults in every phase of every actor, under streams of HTTP and ZeroMQ clients.

An episode: harm an idle server, start all streams, harm it while prompts are computed, and then again and again until the
streams have ended. Between two faults each stream gets text, so that a fault meets a server that works. The last episode is a
drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from messages.client import AsyncClient
from messages.ids import role_of
from messages.lifecycle import ChildStatus, StatusReport
from messages.run_dir import front_endpoint
from ops.bench.campaign.deck import Card, Deck, Harm, Phase
from ops.bench.campaign.zmq_streams import follow_zmq
from supervisor.children.run_dir import read_pid
from supervisor.drill.faults import harm
from supervisor.drill.figures import Round
from supervisor.drill.streams import Stream, StreamOptions, follow_accepted
from supervisor.operator.calls import NoServer, ask_status, order_drain

SUPERVISOR, PARENT = "supervisor", "parent"
_READY = ("ready", "draining", "drained")
_LOOK_S = 0.005
_DRAIN_S = 60.0
_BACK_S = 90.0  # longest wait for a process that was killed
_FROZEN_S = 20.0  # longest wait for the successor of a frozen custodian, which may also have survived


@dataclass(frozen=True)
class Victim:
    """A process that may be harmed."""

    name: str
    pid: int
    is_ready: bool

    @property
    def role(self) -> str:
        """The role of its actor, "supervisor" or "parent"."""
        return self.name if self.name in (SUPERVISOR, PARENT) else role_of(self.name)

    @staticmethod
    def of(child: ChildStatus) -> Victim:
        """A child of the supervisor. A standby gang is harmed as any other."""
        return Victim(child.name, int(child.pid), is_ready=child.state in _READY)


@dataclass(frozen=True)
class CampaignPlan:
    """What is done to a server. `make_streams`: new streams for the episode with this number. Every third is of a ZeroMQ
    client, every third has an Idempotency-Key. `targets`: roles to harm; empty: all.
    """

    options: StreamOptions
    run_dir: Path
    n_faults: int
    make_streams: Callable[[int], Sequence[Stream]]
    seed: int = 0
    targets: Sequence[str] = ()
    harms: Sequence[Harm] = tuple(Harm)
    drains: bool = False  # the last episode drains the server
    limit_s: float = math.inf  # no episode begins later than that after the beginning


@dataclass
class CampaignResult:
    """Everything that happened."""

    rounds: list[Round] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)


async def run_campaign(plan: CampaignPlan, say: Callable[[str], None]) -> CampaignResult:
    """Carry out the plan; `say` gets a line for each episode. Raises: NoServer."""
    report = await asyncio.to_thread(ask_status, plan.run_dir)
    n_gateways = sum(role_of(child.name) == "gateway" for child in report.children)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=plan.options.deadline_s, limits=limits))
        fronts = [
            await stack.enter_async_context(AsyncClient(front_endpoint(plan.run_dir, index))) for index in range(n_gateways)
        ]
        for front in fronts:
            await front.models()  # a client that has never been connected gives up while its gateway restarts
        campaign = _Campaign(plan, report, http, fronts)
        number, end_s = 0, time.monotonic() + plan.limit_s
        while len(campaign.result.cards) < plan.n_faults and time.monotonic() < end_s:
            number += 1
            await campaign.episode(number)
            say(f"episode {number}: {len(campaign.result.cards)} faults, {len(campaign.result.streams)} streams")
        if plan.drains:
            await campaign.drain(number + 1)
    return campaign.result


class _Campaign:
    def __init__(self, plan: CampaignPlan, report: StatusReport, http: httpx.AsyncClient, fronts: list[AsyncClient]) -> None:
        self._plan, self._http, self._fronts = plan, http, fronts
        self._chance = random.Random(plan.seed)
        roles = plan.targets or sorted({role_of(child.name) for child in report.children} | {SUPERVISOR, PARENT})
        self._deck = Deck(roles, plan.harms, self._chance)
        self.result = CampaignResult()
        self._last_report, self._is_answered = report, True

    async def episode(self, number: int) -> None:
        """Streams from their start to their end, with faults before and meanwhile."""
        await self._strike(Phase.WAITING, {})
        running = self._start(number)
        await self._wait(lambda: any(stream.is_accepted or task.done() for task, stream in running.items()))
        await self._strike(Phase.PREFILL, running)
        while await self._progress(running):
            phase = self._chance.choice((Phase.DECODE, Phase.DECODE, Phase.LOADING, Phase.RESTARTED))
            await self._strike(phase, running)
        await asyncio.gather(*running)

    async def drain(self, number: int) -> None:
        """The server drains, and each role is harmed until the streams have ended."""
        running = self._start(number)
        await self._progress(running)
        await asyncio.to_thread(order_drain, self._plan.run_dir, _DRAIN_S, False)
        while await self._progress(running):
            await self._strike(Phase.DRAINING, running)
        await asyncio.gather(*running)

    def _start(self, number: int) -> dict[asyncio.Task[None], Stream]:
        running = {}
        for index, stream in enumerate(self._plan.make_streams(number)):
            if index % 3 == 0:
                work = follow_zmq(self._fronts[index // 3 % len(self._fronts)], self._plan.options, stream)
            else:
                stream.key = f"episode {number} stream {index}" if index % 3 == 1 else ""
                work = follow_accepted(self._http, self._plan.options, stream)
            running[asyncio.create_task(work)] = stream
            self.result.streams.append(stream)
        return running

    async def _progress(self, running: dict[asyncio.Task[None], Stream]) -> bool:
        """Wait until each stream that is under way has new text; returns whether there are any."""
        now_s = time.monotonic()
        await self._wait(lambda: all(task.done() or (s.arrivals_s and s.arrivals_s[-1] > now_s) for task, s in running.items()))
        return not all(task.done() for task in running)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Ends, because every stream ends at its deadline at the latest."""
        while not condition():
            await asyncio.sleep(_LOOK_S)

    async def _strike(self, phase: Phase, running: dict[asyncio.Task[None], Stream]) -> None:
        """Draw a card and play it. Before a fault of a process that has just begun, the one before it is killed."""
        card = self._deck.draw(phase)
        try:
            child = await asyncio.to_thread(self._pick, card.role, 0.0 if phase is Phase.DRAINING else _BACK_S)
        except TimeoutError:
            if phase is Phase.DRAINING:
                return  # it is not needed for the end of a drain
            raise
        if card.role == "custodian":
            await self._strike_custodian(card, child, running)
            return
        if card.role == PARENT:
            await self._strike_parent(card, child, running)
            return
        if phase in (Phase.LOADING, Phase.RESTARTED):
            self._harm(Card(card.role, Phase.DECODE, Harm.KILL), child, running)
            child = await asyncio.to_thread(self._next_life, child, is_ready=phase is Phase.RESTARTED)
            if phase is Phase.LOADING and child.is_ready:
                card = replace(card, phase=Phase.RESTARTED)  # it was too fast
        self._harm(card, child, running)

    async def _strike_custodian(self, card: Card, child: Victim, running: dict[asyncio.Task[None], Stream]) -> None:
        """Before and after each fault of a custodian, wait until gateways have given it their connections."""
        await asyncio.to_thread(self._wait_held, {}, _BACK_S)
        if card.phase in (Phase.LOADING, Phase.RESTARTED):
            card = replace(card, phase=Phase.RESTARTED)
            had = await asyncio.to_thread(self._custodians_of_gateways)
            self._harm(Card(card.role, Phase.DECODE, Harm.KILL), child, running)
            child = await asyncio.to_thread(self._next_life, child, is_ready=True)
            await asyncio.to_thread(self._wait_held, had, _BACK_S)
        had = await asyncio.to_thread(self._custodians_of_gateways)
        self._harm(card, child, running)
        if card.harm is not Harm.PAUSE:
            await asyncio.to_thread(self._wait_held, had, _BACK_S if card.harm is Harm.KILL else _FROZEN_S)

    async def _strike_parent(self, card: Card, parent: Victim, running: dict[asyncio.Task[None], Stream]) -> None:
        """After each death of a parent, wait until the supervisor has taken its place: it must not die meanwhile."""
        if card.phase in (Phase.LOADING, Phase.RESTARTED):
            card = replace(card, phase=Phase.RESTARTED)
            self._harm(Card(card.role, Phase.DECODE, Harm.KILL), parent, running)
            parent = await asyncio.to_thread(self._next_life, parent, is_ready=True)
        self._harm(card, parent, running)
        if card.harm is Harm.KILL:
            await asyncio.to_thread(self._next_life, parent, is_ready=True)

    def _harm(self, card: Card, child: Victim, running: dict[asyncio.Task[None], Stream]) -> None:
        streams = [stream for task, stream in running.items() if not task.done()]
        if card.phase is Phase.DECODE and not all(stream.pieces for stream in streams):
            card = replace(card, phase=Phase.PREFILL)
        elif card.phase is Phase.PREFILL and all(stream.pieces for stream in streams):
            card = replace(card, phase=Phase.DECODE)
        at_s = time.monotonic()
        try:
            harm(card.harm.fault(child.name), child.pid)
        except ProcessLookupError:
            return  # it has died of an earlier fault, which its supervisor has not noticed yet
        result = self.result
        if result.rounds:
            result.rounds[-1] = replace(result.rounds[-1], until_s=at_s)
        result.rounds.append(Round(card.label, child.name, at_s, 0.0, streams))
        result.cards.append(card)

    def _pick(self, role: str, longest_s: float) -> Victim:
        """A ready process of this role. Blocks until there is one. Raises: TimeoutError after `longest_s`."""
        return self._look(lambda victim: victim.role == role and victim.is_ready, longest_s)

    def _next_life(self, before: Victim, *, is_ready: bool) -> Victim:
        """The process that follows a dead one, ready if `is_ready`. Blocks until it is there. Raises: TimeoutError."""

        def is_it(victim: Victim) -> bool:
            return victim.name == before.name and victim.pid not in (0, before.pid) and (victim.is_ready or not is_ready)

        return self._look(is_it)

    def _custodians_of_gateways(self) -> dict[tuple[str, int], float]:
        """How many custodians each incarnation of a gateway has connected to, as it has told last."""
        gateways = [child for child in self._report().children if role_of(child.name) == "gateway"]
        return {(child.name, int(child.incarnation)): child.statistics.get("custodians", 0.0) for child in gateways}

    def _wait_held(self, had: dict[tuple[str, int], float], longest_s: float) -> None:
        """Until each gateway has given its connections to another custodian than the ones it `had`. Blocks.

        A connection ends with its gateway while no custodian has it. A custodian that was only paused has them still.
        """
        until_s = time.monotonic() + longest_s
        while time.monotonic() < until_s:
            if all(n > had.get(gateway, 0.0) for gateway, n in self._custodians_of_gateways().items()):
                return
            time.sleep(_LOOK_S)

    def _look(self, is_it: Callable[[Victim], bool], longest_s: float = _BACK_S) -> Victim:
        """One of the processes that are it. Blocks until there is one. Raises: TimeoutError after `longest_s`."""
        until_s = time.monotonic() + longest_s
        while True:
            victims = [Victim.of(child) for child in self._report().children]
            if self._is_answered:  # a supervisor is there, which can take the place of the parent
                victims.append(Victim(PARENT, self._last_report.parent_pid, is_ready=True))
            supervisor_pid = read_pid(self._plan.run_dir)
            if supervisor_pid:
                victims.append(Victim(SUPERVISOR, supervisor_pid, is_ready=True))
            if found := [victim for victim in victims if victim.pid and is_it(victim)]:
                return self._chance.choice(found)
            if time.monotonic() >= until_s:
                raise TimeoutError(f"no process came within {longest_s:g} s")
            time.sleep(_LOOK_S)

    def _report(self) -> StatusReport:
        """The tree's status; while the supervisor is away, the last one."""
        self._is_answered = False
        with contextlib.suppress(NoServer):
            self._last_report = ask_status(self._plan.run_dir)
            self._is_answered = True
        return self._last_report
