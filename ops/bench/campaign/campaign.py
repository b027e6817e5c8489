"""A campaign against our own server: faults in every phase of every actor, under streams of HTTP and ZeroMQ clients.

An episode: harm an idle server, start all streams, harm it while prompts are computed, and then again and again until the
streams have ended. Between two faults each stream gets text, so that a fault meets a server that works. The last episode is a
drain. Where there is an embedder, two more clients ask for embeddings as long as streams run; a drain refuses new calls.
"""

from __future__ import annotations

import asyncio
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
from messages.lifecycle.tree import StatusReport
from messages.run_dir import zeromq_endpoint
from ops.bench.campaign.fault_schedule import FaultSchedule, Harm, Phase, ScheduledFault
from ops.bench.campaign.processes import BACK_S, PARENT, STANDBY, Processes, Victim
from ops.bench.campaign.zmq_streams import follow_zmq
from supervisor.drill.embedding_calls import RightVectors, call_again_and_again, learn_vectors
from supervisor.drill.faults import harm
from supervisor.drill.figures import Round
from supervisor.drill.streams import DrillStream, StreamRequest, follow_accepted
from supervisor.operator.calls import ask_drain, ask_status

_UNDER_WAY = (Phase.DECODE, Phase.DECODE, Phase.LOADING, Phase.RESTARTED)  # while streams are: drawn at random
_POLL_S = 0.005
_EMBEDDING_CLIENTS = 2
_DRAIN_S = 60.0
_FROZEN_S = 20.0  # longest wait for the successor of a frozen custodian, which may also have survived


@dataclass(frozen=True)
class CampaignPlan:
    """What is done to a server. `make_streams`: new streams for the episode with this number. Every third is of a ZeroMQ
    client, every third has an Idempotency-Key. `targets`: roles to harm; empty: all.
    """

    options: StreamRequest
    run_dir: Path
    n_faults: int
    make_streams: Callable[[int], Sequence[DrillStream]]
    seed: int = 0
    targets: Sequence[str] = ()
    harms: Sequence[Harm] = tuple(Harm)
    drains: bool = False  # the last episode drains the server
    limit_s: float = math.inf  # no episode begins later than that after the beginning


@dataclass
class CampaignResult:
    """Everything that happened."""

    rounds: list[Round] = field(default_factory=list)
    inflicted: list[ScheduledFault] = field(default_factory=list)
    streams: list[DrillStream] = field(default_factory=list)


async def run_campaign(plan: CampaignPlan, say: Callable[[str], None]) -> CampaignResult:
    """Carry out the plan; `say` gets a line for each episode. Raises: NoServer."""
    report = await asyncio.to_thread(ask_status, plan.run_dir)
    roles = [role_of(child.name) for child in report.children]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with AsyncExitStack() as stack:
        asks = httpx.AsyncClient(timeout=plan.options.deadline_s, limits=limits, headers=plan.options.headers)
        http, api_key = await stack.enter_async_context(asks), plan.options.api_key or None
        clients = [
            await stack.enter_async_context(AsyncClient(zeromq_endpoint(plan.run_dir, index), api_key=api_key))
            for index in range(roles.count("gateway"))
        ]
        for client in clients:
            await client.models()  # a client that has never been connected gives up while its gateway restarts
        vectors = await learn_vectors(http, plan.options, _EMBEDDING_CLIENTS) if "embedder" in roles else {}
        campaign = _Campaign(plan, report, http, clients, vectors)
        number, end_s = 0, time.monotonic() + plan.limit_s
        while len(campaign.result.inflicted) < plan.n_faults and time.monotonic() < end_s:
            number += 1
            await campaign.episode(number)
            say(f"episode {number}: {len(campaign.result.inflicted)} faults, {len(campaign.result.streams)} streams")
        if plan.drains:
            await campaign.drain(number + 1)
    return campaign.result


class _Campaign:
    def __init__(
        self,
        plan: CampaignPlan,
        report: StatusReport,
        http: httpx.AsyncClient,
        clients: list[AsyncClient],
        vectors: RightVectors,
    ) -> None:
        self._plan, self._http, self._clients, self._vectors = plan, http, clients, vectors
        self._chance = random.Random(plan.seed)
        self._processes = Processes(plan.run_dir, report, self._chance)
        self._schedule = FaultSchedule(plan.targets or self._processes.roles, plan.harms, self._chance)
        self._phases = [phase for phase in _UNDER_WAY if self._schedule.has(phase)]
        self.result = CampaignResult()

    async def episode(self, number: int) -> None:
        """Streams from their start to their end, with faults before and meanwhile."""
        await self._inject(Phase.WAITING, {})
        drawn = await self._draw(Phase.PREFILL)  # before the streams: prompts are computed in no time
        running = self._start(number)
        running |= self._start_calls(running)
        await self._wait(lambda: any(stream.is_accepted or task.done() for task, stream in running.items()))
        if drawn is not None:
            await self._carry_out(*drawn, running)
        while await self._progress(running):
            await self._inject(self._chance.choice(self._phases), running)
        await asyncio.gather(*running)

    async def drain(self, number: int) -> None:
        """The server drains, and each role is harmed until the streams have ended."""
        running = self._start(number)
        await self._progress(running)
        await asyncio.to_thread(ask_drain, self._plan.run_dir, _DRAIN_S, False)
        while await self._progress(running):
            await self._inject(Phase.DRAINING, running)
        await asyncio.gather(*running)

    def _start(self, number: int) -> dict[asyncio.Task[None], DrillStream]:
        running = {}
        for index, stream in enumerate(self._plan.make_streams(number)):
            if index % 3 == 0:
                work = follow_zmq(self._clients[index // 3 % len(self._clients)], self._plan.options, stream)
            else:
                stream.key = f"episode {number} stream {index}" if index % 3 == 1 else ""
                work = follow_accepted(self._plan.options, stream)
            running[asyncio.create_task(work)] = stream
            self.result.streams.append(stream)
        return running

    def _start_calls(self, beside: dict[asyncio.Task[None], DrillStream]) -> dict[asyncio.Task[None], DrillStream]:
        """Clients that ask for embeddings until these streams have ended. They repeat what a gateway's death cuts off."""
        tasks, running = list(beside), {}
        for text in self._vectors:
            stream = DrillStream(text)
            call = call_again_and_again(
                self._http, self._plan.options, stream, self._vectors, lambda: all(task.done() for task in tasks), repeats=True
            )
            running[asyncio.create_task(call)] = stream
            self.result.streams.append(stream)
        return running

    async def _progress(self, running: dict[asyncio.Task[None], DrillStream]) -> bool:
        """Wait until each stream that is under way has new text; returns whether there are any."""
        now_s = time.monotonic()
        await self._wait(lambda: all(task.done() or (s.arrivals_s and s.arrivals_s[-1] > now_s) for task, s in running.items()))
        return not all(task.done() for task in running)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Ends, because every stream ends at its deadline at the latest."""
        while not condition():
            await asyncio.sleep(_POLL_S)

    async def _inject(self, phase: Phase, running: dict[asyncio.Task[None], DrillStream]) -> None:
        """Draw a fault of this phase and inflict it."""
        if (drawn := await self._draw(phase)) is not None:
            await self._carry_out(*drawn, running)

    async def _draw(self, phase: Phase) -> tuple[ScheduledFault, Victim] | None:
        """A fault and a process of its role. None in a drain, if there is none now: a drain may end without it."""
        fault = self._schedule.draw(phase)
        if fault.role == "custodian":  # gateways have given it their connections before it is harmed
            await asyncio.to_thread(self._processes.wait_held, {})
        try:
            return fault, await asyncio.to_thread(self._processes.pick, fault.role, 0.0 if phase is Phase.DRAINING else BACK_S)
        except TimeoutError:
            if phase is not Phase.DRAINING:
                raise
            self._schedule.put_back(fault)
            return None

    async def _carry_out(self, drawn: ScheduledFault, child: Victim, running: dict[asyncio.Task[None], DrillStream]) -> None:
        """Harm a process, and wait until nothing more can be lost of what it held alone.

        A custodian must not die together with a gateway, nor a parent with its supervisor.
        """
        fault, before, processes = drawn, child, self._processes
        had = await asyncio.to_thread(processes.custodians_of_gateways) if fault.role == "custodian" else {}
        if fault.phase in (Phase.LOADING, Phase.RESTARTED):
            child = await self._kill_before(fault, child, running)
            if child.is_ready:
                fault = replace(fault, phase=Phase.RESTARTED)  # it may have been too fast
                if fault.role == "custodian":
                    await asyncio.to_thread(processes.wait_held, had)
                    had = await asyncio.to_thread(processes.custodians_of_gateways)
        if self._harm(fault, child, running) != drawn:
            self._schedule.put_back(drawn)
        is_replaced = fault.harm is not Harm.PAUSE or fault.phase is Phase.LOADING
        if fault.role == "custodian" and is_replaced:
            await asyncio.to_thread(processes.wait_held, had, _FROZEN_S if fault.harm is Harm.FREEZE else BACK_S)
        elif fault.role == PARENT and is_replaced:
            await asyncio.to_thread(processes.next_ready, before if fault.phase is Phase.LOADING else child)

    async def _kill_before(
        self, fault: ScheduledFault, child: Victim, running: dict[asyncio.Task[None], DrillStream]
    ) -> Victim:
        """Kill a process; returns the next one, which is just loading or just ready again."""
        kill = ScheduledFault(fault.role, Phase.DECODE, Harm.KILL)
        is_loading = fault.phase is Phase.LOADING
        if is_loading and fault.role == PARENT:
            following = await asyncio.to_thread(self._processes.next_parent)
            self._harm(kill, child, running)
            return following
        if is_loading and fault.role == "worker":
            standby = await asyncio.to_thread(self._processes.partner, child)
            if standby is not None:  # it would take over, and what loads then is the next standby
                self._harm(replace(kill, role=STANDBY), standby, running)
        self._harm(kill, child, running)
        following = self._processes.next_loading if is_loading else self._processes.next_ready
        return await asyncio.to_thread(following, child)

    def _harm(
        self, fault: ScheduledFault, child: Victim, running: dict[asyncio.Task[None], DrillStream]
    ) -> ScheduledFault | None:
        """Inflict one fault. Returns it with the phase of the streams; None if the process was dead already."""
        streams = [stream for task, stream in running.items() if not task.done()]
        if fault.phase is Phase.DECODE and not all(stream.pieces for stream in streams):
            fault = replace(fault, phase=Phase.PREFILL)
        elif fault.phase is Phase.PREFILL and all(stream.pieces for stream in streams):
            fault = replace(fault, phase=Phase.DECODE)
        at_s = time.monotonic()
        try:
            harm(fault.harm.fault(child.name), child.pid)
        except ProcessLookupError:
            return None  # it has died of an earlier fault, which its supervisor has not noticed yet
        result = self.result
        if result.rounds:
            result.rounds[-1] = replace(result.rounds[-1], until_s=at_s)
        result.rounds.append(Round(fault.label, child.name, at_s, 0.0, streams))
        result.inflicted.append(fault)
        return fault
