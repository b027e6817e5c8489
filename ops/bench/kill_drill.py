"""Processes of a running server are killed while clients stream, and every token is compared with what must come.

The expectation is the hash chain's own formula, or, for a real model, what the same requests gave before the first kill.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.errors import ClientError
from messages.generation import Sampling
from messages.ids import role_of
from messages.lifecycle import ChildStatus
from ops.bench.drill_figures import Kill, StreamSeen
from ops.bench.own_server import OwnServer
from ops.bench.prompts import random_ids
from supervisor.operator.calls import NoServer, ask_status

_LOOK_S = 0.05


@dataclass(frozen=True)
class DrillPlan:
    """What is done to a server."""

    streams: int
    prompt_tokens: int
    output_tokens: int
    duration_s: float  # of killing; streams that run then are followed to their end
    every_s: float  # between two kills, on average
    target: str  # a role, a name, or "random"
    seed: int
    vocabulary: int
    deadline_s: float  # of one stream
    is_hash_chain: bool
    sampled_share: float  # of the streams; the others are greedy


@dataclass(frozen=True)
class Case:
    """One request and the only right answer to it."""

    prompt: list[int]
    sampling: Sampling
    expected: list[int]


class KillDrill:
    """One drill against one server."""

    def __init__(self, server: OwnServer, endpoint: str, plan: DrillPlan) -> None:
        self._server, self._endpoint, self._plan = server, endpoint, plan
        self._rng = random.Random(plan.seed)
        self.kills: list[Kill] = []
        self.seen: list[StreamSeen] = []

    async def run(self) -> None:
        """Prepare the cases, then kill and stream side by side; returns when every stream has ended."""
        async with AsyncClient(self._endpoint) as client:
            cases = await self._cases(client)
            end_s = time.monotonic() + self._plan.duration_s
            killer = asyncio.create_task(self._kill_until(end_s))
            await asyncio.gather(*(self._stream_until(client, cases, number, end_s) for number in range(self._plan.streams)))
            await killer

    async def _cases(self, client: AsyncClient) -> list[Case]:
        """One case for each stream."""
        plan, cases = self._plan, []
        for number in range(plan.streams):
            prompt = random_ids(plan.prompt_tokens, self._rng, plan.vocabulary)
            is_sampled = int((number + 1) * plan.sampled_share) > int(number * plan.sampled_share)
            seed = self._rng.getrandbits(40) + 1 if is_sampled else 0
            cases.append(Case(prompt, Sampling(temperature=1.0 if seed else 0.0, seed=seed), []))
        if plan.is_hash_chain:
            return [Case(c.prompt, c.sampling, self._formula(c)) for c in cases]
        answers = await asyncio.gather(*(self._follow(client, case) for case in cases))
        broken = [answer.error for answer in answers if answer.error]
        if broken:
            raise ValueError(f"reference run: expected every stream to end well, got {broken[0]}")
        return [Case(case.prompt, case.sampling, answer.ids) for case, answer in zip(cases, answers, strict=True)]

    def _formula(self, case: Case) -> list[int]:
        return hash_chain_tokens(case.prompt, self._plan.output_tokens, case.sampling.seed, self._plan.vocabulary)

    async def _stream_until(self, client: AsyncClient, cases: Sequence[Case], number: int, end_s: float) -> None:
        case = cases[number]
        while time.monotonic() < end_s:
            self.seen.append(await self._follow(client, case))

    async def _follow(self, client: AsyncClient, case: Case) -> StreamSeen:
        plan = self._plan
        seen = StreamSeen(time.monotonic(), case.expected, is_greedy=case.sampling.temperature == 0)
        try:
            async for piece in client.stream(
                tokens=case.prompt,
                sampling=case.sampling,
                max_tokens=plan.output_tokens,
                ignore_eos=True,
                deadline_s=plan.deadline_s,
            ):
                if len(piece.ids):
                    seen.ids += [int(token) for token in piece.ids]
                    seen.arrivals_s.append(time.monotonic())
        except ClientError as error:
            seen.error = f"{type(error).__name__}: {error}"[:200]
        seen.ended_s = time.monotonic()
        return seen

    async def _kill_until(self, end_s: float) -> None:
        while True:
            pause_s = self._rng.uniform(0.5, 1.5) * self._plan.every_s
            await asyncio.sleep(min(pause_s, max(end_s - time.monotonic(), 0.0)))
            child = await self._pick(end_s)
            if child is None or time.monotonic() >= end_s:
                return
            self.kills.append(Kill(time.monotonic(), child.name, child.incarnation))
            os.kill(child.pid, signal.SIGKILL)

    async def _pick(self, end_s: float) -> ChildStatus | None:
        """A ready child that may be killed; waits until there is one."""
        while time.monotonic() < end_s:
            try:
                report = await asyncio.to_thread(ask_status, self._server.run_dir)
            except NoServer:
                return None
            ready = [child for child in report.children if child.state == "ready" and self._may_kill(child)]
            if ready:
                return self._rng.choice(ready)
            await asyncio.sleep(_LOOK_S)
        return None

    def _may_kill(self, child: ChildStatus) -> bool:
        return self._plan.target in ("random", child.name, role_of(child.name))
