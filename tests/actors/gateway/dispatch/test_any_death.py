"""Anybody dies at any time, in any order, while ZeroMQ clients stream: every stream is the oracle's, once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.hash_chain import prompt_logprobs
from gpu_workers.settings import WorkerSettings
from messages.client import AsyncClient
from messages.generation.sampling import Sampling
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import Gang
from tests.support.metric_values import metric_value

WORKER = WorkerSettings(model_folder="hash-chain", n_slots=8, max_length=512, max_step_tokens=32, hash_chain_pages=48)
DEADLINE_S = 60.0
N_STREAMS, N_TOKENS, N_DEATHS = 10, 80, 6


class Deaths:
    """Kills and replaces, as the supervisor would."""

    def __init__(self, r: Rig) -> None:
        self._r, self._lives = r, {"scheduler/0": 1, "worker/0.0": 1, "gateway/0": 1}

    async def kill(self, name: str) -> None:
        """One death, and the next life."""
        self._lives[name] += 1
        life, cluster = self._lives[name], self._r.cluster
        if name == "gateway/0":
            await self._r.kill_gateway()
            await self._r.start_gateway(life)
            return
        await cluster.kill(name)
        if name == "scheduler/0":
            cluster.start(SchedulerActor, name, SchedulerSettings(), life)
        else:
            cluster.introduce(Gang(cluster, WORKER, life))
        await cluster.wait_until(lambda: self._r.gateway.incarnation_of(name) == life)

    def next_victim(self, chance: random.Random) -> str:
        """Anybody."""
        return chance.choice(sorted(self._lives))


def n_recorded(r: Rig) -> int:
    return int(metric_value(r.gateway.metrics.output_tokens))


@pytest.mark.parametrize("seed", range(4))
async def test_every_stream_is_exact_whoever_dies(seed: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory(prefix="tg-") as folder:
        places: dict[str, Any] = {"zeromq_endpoint": f"ipc://{folder}/zeromq-0", "journal_path": str(Path(folder) / "journal")}
        async with rig(with_scheduler=False, max_length=512, **places) as r, AsyncClient(places["zeromq_endpoint"]) as client:
            r.cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings())
            r.cluster.introduce(Gang(r.cluster, WORKER))
            await r.cluster.wait_until(lambda: r.gateway.living("scheduler") and r.gateway.living("worker"))
            prompts = [[chance.randrange(1000) for _ in range(chance.randrange(1, 70))] for _ in range(N_STREAMS)]
            asked = [
                client.generate(p, max_tokens=N_TOKENS, sampling=Sampling(temperature=0.0), prompt_logprobs=i % 2 - 1)
                for i, p in enumerate(prompts)
            ]
            answers = [asyncio.ensure_future(one) for one in asked]
            deaths = Deaths(r)
            async with asyncio.timeout(DEADLINE_S):
                for _ in range(N_DEATHS):
                    wanted = n_recorded(r) + chance.randrange(60)
                    await r.cluster.wait_until(lambda wanted=wanted: n_recorded(r) >= wanted or all(a.done() for a in answers))
                    await deaths.kill(deaths.next_victim(chance))
                for i, (prompt, answer) in enumerate(zip(prompts, await asyncio.gather(*answers), strict=True)):
                    assert answer.tokens == oracle(prompt, N_TOKENS)
                    assert answer.text == ids_text(answer.tokens)
                    assert answer.reason == "length"
                    scored = answer.prompt_logprobs
                    expected = prompt_logprobs(prompt) if i % 2 else []
                    assert (scored.logprobs.chosen.tolist() if scored is not None else []) == expected
            manager = r.gateway.manager
            await r.cluster.wait_until(lambda: not manager.gate.n_active)
