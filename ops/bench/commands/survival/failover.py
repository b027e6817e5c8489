"""`failover`: from the death of a process of a replica to the next tokens of its streams, on a real server.

python -m ops.bench failover --rounds 20

Tokens that were on their way at the death still come. So what counts for a stream is the end of its longest gap about then.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from datetime import datetime
from itertools import cycle, pairwise
from typing import Any

import click

from messages.client import AsyncClient
from messages.lifecycle.tree import ChildState
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, own_server
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize
from supervisor.operator.calls import ask_status

_READY_S, _ABOUT_S, _LATE_S = 120.0, 0.05, 2.0
_AGAIN = re.compile(r"^(\S+)Z .*requests are submitted again .*away_from=(\S+)", re.MULTILINE)
_MS = 1e3


class _Follower:
    """One stream: when its tokens have come, by the monotonic clock."""

    def __init__(self) -> None:
        self.arrivals_s: list[float] = []

    async def follow(self, client: AsyncClient, prompt: list[int], n_tokens: int) -> None:
        """Read the whole answer. Raises: ClientError."""
        async for piece in client.stream(
            tokens=prompt, max_tokens=n_tokens, temperature=0.0, ignore_eos=True, deadline_s=120.0
        ):
            if piece.ids:
                self.arrivals_s.append(time.monotonic())

    def stood_still_s(self, killed_s: float) -> float:
        """From the death to the end of the longest gap between tokens that ended after it and began at most 50 ms later; 0
        if there is none."""
        pairs = [(at_s - before_s, at_s - killed_s) for before_s, at_s in pairwise(self.arrivals_s)]
        return max(((gap_s, end_s) for gap_s, end_s in pairs if end_s > 0.0 and end_s - gap_s < _ABOUT_S), default=(0.0, 0.0))[
            1
        ]


@click.command(context_settings={"show_default": True})
@click.option("--rounds", default=20, help="Deaths of each role.")
@click.option("--role", "roles", multiple=True, type=click.Choice(["scheduler", "worker"]), default=("scheduler", "worker"))
@click.option("--streams", default=8, help="Streams in a round, on two replicas.")
@click.option("--step-ms", default=5.0, help="Artificial time of one step of the hash chain.")
@click.option("--prompt-tokens", default=200)
@click.option("--output-tokens", default=400)
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(
    rounds: int, roles: tuple[str, ...], streams: int, step_ms: float, prompt_tokens: int, output_tokens: int,
    server_args: tuple[str, ...], seed: int, out: str | None,
) -> None:  # fmt: skip
    """Kill -9 one process of a replica while its streams run, by turns of the roles. Streams go to both replicas by turns, so
    the half that stood still for longer is that of the dead one."""
    machine, chance = describe_machine(), random.Random(seed)
    setting = f"worker.hash_chain_step_s={step_ms / _MS:g}"
    arguments = [*f"--model hash-chain --replicas 2 --balancing round_robin --set {setting}".split(), *server_args]
    killed: dict[str, list[tuple[str, float]]] = {role: [] for role in roles}  # replica, Unix time
    found: dict[str, tuple[list[float], list[float]]] = {role: ([], []) for role in roles}
    with own_server(arguments, keeps_log=True) as server:
        for number, role in zip(range(rounds * len(roles)), cycle(roles), strict=False):
            name = f"{role}/{number // len(roles) % 2}" + (".0" if role == "worker" else "")
            waits_s = asyncio.run(_round(server, name, streams, prompt_tokens, output_tokens, chance, killed[role]))
            found[role][0].extend(waits_s[streams // 2 :])
            found[role][1].extend(waits_s[: streams // 2])
            shown = ", ".join(f"{_MS * wait_s:.0f}" for wait_s in waits_s)
            CONSOLE.print(f"{name}: next tokens after {shown} ms", highlight=False)
        log = server.log.read_text(encoding="utf-8")
    server.log.unlink()
    facts = {"rounds": rounds, "streams": streams, "step_ms": step_ms, "prompt_tokens": prompt_tokens, "seed": seed}
    facts |= {"server_args": server_args, "machine": machine}
    by_role = {role: {"resubmitted_ms": _summary(_again_s(log, killed[role])), **_figures(*found[role])} for role in roles}
    write_json({"bench": "failover", **facts, **by_role}, out)


def _figures(dead_s: list[float], others_s: list[float]) -> dict[str, Any]:
    """How long the streams of dead replicas stood still, and all others, in ms."""
    return {"next_token_ms": _summary(dead_s), "of_the_others_ms": _summary(others_s)}


def _summary(values_s: list[float]) -> dict[str, float] | None:
    summary = summarize(values_s)
    return None if summary is None else summary.scaled(_MS, 1)


def _again_s(log: str, killed: list[tuple[str, float]]) -> list[float]:
    """From each death to the line in the server's log that says that its sequences are submitted again. A worker that was back
    before that has none."""
    lines = [(datetime.fromisoformat(found[1] + "+00:00").timestamp(), found[2]) for found in _AGAIN.finditer(log)]
    found = [next((t - s for t, name in lines if 0 < t - s < _LATE_S and name == f"scheduler/{n}"), None) for n, s in killed]
    return [again_s for again_s in found if again_s is not None]


async def _round(
    server: OwnServer, name: str, n: int, n_prompt: int, n_tokens: int, chance: random.Random, killed: list[tuple[str, float]]
) -> list[float]:
    """The wait of each stream for its next tokens after the death, the shortest first. All of them must end well."""
    await _until_ready(server)
    followers = [_Follower() for _ in range(n)]
    async with AsyncClient(port=server.port) as client:
        prompts = [[chance.randrange(100) for _ in range(n_prompt)] for _ in followers]
        tasks = [asyncio.create_task(one.follow(client, p, n_tokens)) for one, p in zip(followers, prompts, strict=True)]
        while not all(len(one.arrivals_s) > n_tokens // 8 or task.done() for one, task in zip(followers, tasks, strict=True)):
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() * 0.1)
        [pid] = [child.pid for child in (await asyncio.to_thread(ask_status, server.run_dir)).children if child.name == name]
        killed.append((name.partition("/")[2].partition(".")[0], time.time()))
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*tasks)
    return sorted(one.stood_still_s(killed_s) for one in followers)


async def _until_ready(server: OwnServer) -> None:
    async with asyncio.timeout(_READY_S):
        while any(one.state is not ChildState.READY for one in (await asyncio.to_thread(ask_status, server.run_dir)).children):
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # until gateways know of it
