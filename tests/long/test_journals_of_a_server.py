"""All processes of a server are killed, its journals are damaged, and it starts with fewer gateways: no answer is wrong."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.generation.sampling import Sampling
from tests.support.real_server import WITHOUT_SPARES, RealServer
from tests.support.workers.pulse import PULSE

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

N_REQUESTS, N_TOKENS, VOCABULARY = 12, 200, 32_768
DEADLINE_S = 60.0
_FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")


class Asked:
    """The requests of one gateway's clients, and the tokens that each has seen."""

    def __init__(self, gateway: int) -> None:
        self.tokens: dict[str, list[int]] = {f"g{gateway}-{nth}": [] for nth in range(N_REQUESTS)}
        self._gateway = gateway

    def prompt(self, request: str) -> list[int]:
        return [self._gateway + 1, 7, 7, int(request.rpartition("-")[2])]

    async def follow(self, client: AsyncClient) -> None:
        await asyncio.gather(*(self._follow(client, request) for request in self.tokens))

    async def _follow(self, client: AsyncClient, request: str) -> None:
        greedy = Sampling(temperature=0.0)
        asked = {"max_tokens": N_TOKENS, "sampling": greedy, "request": request}
        async with PULSE.beating():
            async for piece in client.stream(tokens=self.prompt(request), **asked):
                self.tokens[request] += piece.ids

    async def ask_again(self, client: AsyncClient) -> None:
        for request, seen in self.tokens.items():
            prompt = self.prompt(request)
            greedy = Sampling(temperature=0.0)
            answer = await client.generate(prompt, max_tokens=N_TOKENS, sampling=greedy, request=request)
            assert answer.tokens == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
            assert answer.tokens[: len(seen)] == seen


def flip_one_byte_in_each(files: list[Path], chance: random.Random) -> None:
    for file in files:
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)


@pytest.mark.parametrize("seed", range(2))
async def test_damaged_journals_of_two_gateways_are_finished_by_one(seed: int) -> None:
    chance = random.Random(seed)
    server = await asyncio.to_thread(RealServer, *_FLAGS, "--gateways", "2")
    try:
        groups = [Asked(0), Asked(1)]
        async with AsyncClient(server.zeromq) as first, AsyncClient(f"ipc://{server.run_dir}/zeromq-1") as second:
            work = [asyncio.ensure_future(g.follow(client)) for g, client in zip(groups, (first, second), strict=True)]
            async with asyncio.timeout(DEADLINE_S):
                while not all(len(ids) > 20 for group in groups for ids in group.tokens.values()):
                    await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill_all)
            for one in work:
                one.cancel()
        files = sorted(server.run_dir.glob("journal-*/*.log"))
        assert {file.parent.name for file in files} == {"journal-0", "journal-1"}
        flip_one_byte_in_each(files, chance)
        server._flags = ("--gpus", "0", *WITHOUT_SPARES, *_FLAGS)
        await asyncio.to_thread(server.start_again)
        async with AsyncClient(server.zeromq) as client, asyncio.timeout(DEADLINE_S):
            for group in groups:
                await group.ask_again(client)
        assert not (server.run_dir / "journal-1").exists()
        assert "journal adopted" in server.log()
        assert await asyncio.to_thread(server.stop) == 0
    finally:
        server.clean()


async def test_clients_of_a_gateway_that_does_not_come_back_go_on_at_another_one() -> None:
    """Gateway 3 of 4 is gone after the restart, gateway 1 of 2 has adopted its journal, and its clients come to gateway 0."""
    server = await asyncio.to_thread(RealServer, *_FLAGS, "--gateways", "4")
    try:
        group = Asked(3)
        async with AsyncClient(f"ipc://{server.run_dir}/zeromq-3") as client:
            work = asyncio.ensure_future(group.follow(client))
            async with asyncio.timeout(DEADLINE_S):
                while not all(len(ids) > 20 for ids in group.tokens.values()):
                    await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill_all)
            assert min(map(len, group.tokens.values())) < N_TOKENS
            server._flags = ("--gpus", "0", *_FLAGS, "--gateways", "2")
            await asyncio.to_thread(server.start_again)
            async with asyncio.timeout(DEADLINE_S):
                await work
            for request, tokens in group.tokens.items():
                assert tokens == hash_chain_tokens(group.prompt(request), N_TOKENS, 0, VOCABULARY)
        assert "journal adopted" in server.log()
        assert await asyncio.to_thread(server.stop) == 0
    finally:
        server.clean()
