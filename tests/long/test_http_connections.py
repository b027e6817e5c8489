"""Gateways are killed and frozen again and again: no plain HTTP connection breaks, and every byte is right."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tests.support.http_answers import PAGE_FLAGS, HttpAnswer, answers, wait_events, wait_held, wait_let_go
from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_TOKENS, N_ROUNDS = 200, 6
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", "--set", "supervisor.frozen_s=2.0", *PAGE_FLAGS)


async def hurt(server: RealServer, running: list[HttpAnswer], seed: int, names: tuple[str, ...]) -> float:
    """Kill or freeze each of these processes at a random moment, one after the other, while streams run. Returns when the last
    one was back."""
    dice, hit = random.Random(seed), {}
    for name in names:
        if all(one.is_over for one in running):
            break  # the machine was slow: the last fault took as long as the streams
        if not hit:
            await wait_events(running, dice.randrange(1, 60))
        how = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        hit[name] = await asyncio.to_thread(server.kill, name, how, hit.get(name, 0))
        await asyncio.to_thread(server.wait_new_incarnation, name, hit[name])
        await asyncio.to_thread(server.wait_serving)
    return asyncio.get_running_loop().time()


async def run_with(server: RealServer, run: str, seed: int = 0, names: tuple[str, ...] = ()) -> dict[str, bytes]:
    """All answers while these processes are hurt; returns what each client has read."""
    all_answers = answers(run, N_TOKENS)
    streams = [one for one in all_answers if one.body.get("stream")]
    whole = [one for one in all_answers if one not in streams]
    back_s = 0.0
    await wait_let_go(server)  # of the answers before
    async with asyncio.TaskGroup() as group:
        for one in whole:
            group.create_task(one.follow("127.0.0.1", server.port))
        await wait_held(server, len(whole))  # accepted, which cannot be seen as with streams
        for one in streams:
            group.create_task(one.follow("127.0.0.1", server.port))
        if names:
            back_s = await hurt(server, all_answers, seed, names)
    print(run, names, "longest gap", round(max(one.longest_gap_s for one in streams), 3), "s")
    # a connection between two requests may be closed with its gateway
    assert not [one.name for one in all_answers if one.is_closed and one.over_s > back_s]
    return {one.name.removeprefix(run): one.plain() for one in all_answers}


@pytest.mark.parametrize("n_gateways", [1, 2])
def test_kills_at_random_moments(n_gateways: int) -> None:
    gateways = tuple(f"gateway/{index}" for index in range(n_gateways))
    with real_server(*WITH_SPARES, *FLAGS, "--gateways", str(n_gateways)) as server:
        undisturbed = asyncio.run(run_with(server, "r0"))
        for seed in range(1, N_ROUNDS):
            names = tuple(random.Random(seed).choices(gateways, k=2))
            assert asyncio.run(run_with(server, f"r{seed}", seed, names)) == undisturbed, seed
