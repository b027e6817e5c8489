"""`served-policies`: scheduling policies in a real server of several replicas and gateways, with the hash chain as its model.

python -m ops.bench served-policies --subject shares       two tenants, one asks ten times as much: their parts, tokens/s
python -m ops.bench served-policies --subject deadlines    short requests with a deadline beside bursts, at 90 % of the capacity

Each policy has a server of its own, one after the other; the load is part of what the first of them does at most.
`--kill-scheduler` kills one in the middle of each measurement.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ops.bench.machine import describe_machine
from ops.bench.own_keys import add_key
from ops.bench.own_server import OwnServer, own_server
from ops.bench.policies.served_load import (
    AskedTokens,
    DueRequest,
    TenantTokens,
    ask_by_the_clock,
    client_of,
    largest_distance,
    stream_until,
)
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.operator.calls import ask_status

_DEVICE = ("worker.hash_chain_step_s=0.05", "worker.max_step_tokens=256", "worker.n_slots=8", "worker.hash_chain_pages=20000")
_SETTLED_S = 6.0  # until both tenants have their part, and keys are known
_TIMES = 10  # so many times as many connections has the tenant that asks for more
_SHAPE, _SHORT, _LONG = AskedTokens(16, 48), AskedTokens(16, 16), AskedTokens(64, 96)
_DEADLINE_S = 3.0  # of a short request, which takes 1 s alone
_BURST, _BURST_EVERY_S = 8, 12.0  # long requests for each replica


@dataclass(frozen=True)
class _WantedLoad:
    """`part`: of the `capacity`, in output tokens a second; 0: that is measured before."""

    part: float
    capacity: float
    replicas: int


@click.command(context_settings={"show_default": True})
@click.option("--subject", type=click.Choice(["shares", "deadlines"]), default="shares")
@click.option("--policy", "policies", multiple=True, help="May be repeated. Empty: fcfs and fair, or fcfs and sla.")
@click.option("--weight", default=1.0, help="Of shares: that of the tenant that asks for less; the other one has 1.")
@click.option("--streams", default=16, help="Of shares: connections of the tenant that asks for less.")
@click.option("--load", default=0.9, help="Of deadlines: part of what the server does at most.")
@click.option("--duration", "duration_s", default=30.0, help="Seconds of each measurement.")
@click.option("--replicas", default=2)
@click.option("--gateways", default=2)
@click.option("--kill-scheduler", is_flag=True, help="Kill scheduler/0 in the middle.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here.")
def command(
    subject: str, policies: tuple[str, ...], weight: float, streams: int, load: float, duration_s: float, replicas: int,
    gateways: int, kill_scheduler: bool, seed: int, out: str | None,
) -> None:  # fmt: skip
    """Shares of tenants, or deadlines, by policy, in real servers."""
    flags = ["--model", "hash-chain", "--gpus", "0", "--no-standby", "--api-keys"]
    flags += ["--replicas", str(replicas), "--gateways", str(gateways)]
    flags += [part for one in (*_DEVICE, f"tenants.small.weight={weight}") for part in ("--set", one)]
    result: dict[str, Any] = {}
    capacity = 0.0
    for policy in policies or ("fcfs", "fair" if subject == "shares" else "sla"):
        with (
            tempfile.TemporaryDirectory(prefix="tg-") as state,
            own_server([*flags, "--policy", policy, "--state-dir", state]) as server,
        ):
            keys = [add_key(Path(state), tenant) for tenant in ("small", "big")]
            wanted = _WantedLoad(load, capacity, replicas)
            if subject == "shares":
                measured = _shares(
                    server, [(keys[0], streams), (keys[1], streams * _TIMES)], weight, duration_s, kill_scheduler
                )
            else:
                measured = _deadlines(server, keys[0], wanted, duration_s, random.Random(seed), kill_scheduler)
            result[policy] = {**asyncio.run(measured), "processor_s": _processor_s(server)}
            capacity = result[policy].get("capacity_tokens_per_s", 0.0)
            CONSOLE.print({policy: result[policy]})
    options = {
        "weight": weight,
        "streams": streams,
        "load": load,
        "replicas": replicas,
        "gateways": gateways,
        "killed": kill_scheduler,
    }
    told = {"bench": "served-policies", "subject": subject, "machine": describe_machine(), **options, "duration_s": duration_s}
    write_json({**told, "policies": result}, out)


async def _shares(
    server: OwnServer, asked: Sequence[tuple[str, int]], weight: float, duration_s: float, kills: bool
) -> dict[str, Any]:
    """How far the smaller tenant's part of the tokens is from its share, in any 10 s, and all tokens a second. `asked`: keys of
    both tenants, and their connections."""
    tenants = [(TenantTokens(key), n_streams) for key, n_streams in asked]
    began_s = time.monotonic() + _SETTLED_S
    end_s = began_s + duration_s
    async with client_of(server.url) as http:
        kill = asyncio.ensure_future(_kill_at(server, began_s + duration_s / 2)) if kills else None
        await asyncio.gather(
            *(stream_until(http, tenant, _SHAPE, seed, end_s) for tenant, n_streams in tenants for seed in range(n_streams))
        )
        if kill is not None:
            await kill
    got = [tenant for tenant, _ in tenants]
    small, both = got[0].between(began_s, end_s), sum(one.between(began_s, end_s) for one in got)
    return {
        "share": round(weight / (weight + 1), 4),
        "part": round(small / both, 4),
        "largest_distance_in_10_s": round(largest_distance(got, weight / (weight + 1), (began_s, end_s)), 4),
        "tokens_per_s": round(both / duration_s, 1),
        "errors": sum(one.n_errors for one in got),
    }


async def _deadlines(
    server: OwnServer, key: str, wanted: _WantedLoad, duration_s: float, chance: random.Random, kills: bool
) -> dict[str, Any]:
    """The part of short requests that were in time, beside bursts of long ones."""
    load, n_long = wanted.part, _BURST * wanted.replicas
    async with client_of(server.url) as http:
        capacity = wanted.capacity or await _capacity(http, key)
        burst_tokens = n_long * _LONG.n_output / _BURST_EVERY_S
        short_per_s = (load * capacity - burst_tokens) / _SHORT.n_output
        if short_per_s <= 0:
            raise click.ClickException(f"load: expected more than the bursts, got {load:g} of {capacity:.0f} tokens/s")
        requests, at_s = list[DueRequest](), 0.0
        while (at_s := at_s + chance.expovariate(short_per_s)) < duration_s:
            requests.append(DueRequest(at_s, _SHORT, _DEADLINE_S))
        for number in range(int(duration_s / _BURST_EVERY_S)):
            requests += [DueRequest(1.0 + number * _BURST_EVERY_S, _LONG, None)] * n_long
        kill = asyncio.ensure_future(_kill_at(server, time.monotonic() + duration_s / 2)) if kills else None
        found = await ask_by_the_clock(http, key, requests, chance.randrange(1 << 30))
        if kill is not None:
            await kill
    in_time = found.n_in_time / max(found.n_in_time + found.n_late, 1)
    return {
        "capacity_tokens_per_s": round(capacity, 1),
        "short_per_s": round(short_per_s, 2),
        "in_time": round(in_time, 4),
        "with_deadline": found.n_in_time + found.n_late,
        "others": found.n_others,
        "errors": found.n_errors,
    }


async def _capacity(http: Any, key: str) -> float:
    """Output tokens a second of a server that has more to do than it can."""
    tenant, began_s = TenantTokens(key), time.monotonic() + _SETTLED_S
    end_s = began_s + _SETTLED_S * 2
    await asyncio.gather(*(stream_until(http, tenant, _SHORT, seed, end_s) for seed in range(48)))
    n_tokens = tenant.between(began_s, end_s)
    return n_tokens * _SHORT.n_output / (_SHORT.n_output + _SHORT.n_prompt) / (end_s - began_s)


async def _kill_at(server: OwnServer, at_s: float) -> None:
    report = await asyncio.to_thread(ask_status, server.run_dir)
    await asyncio.sleep(max(at_s - time.monotonic(), 0.0))
    os.kill(next(child.pid for child in report.children if child.name == "scheduler/0"), signal.SIGKILL)


def _processor_s(server: OwnServer) -> float:
    """Processor time of all processes of the server until now."""
    ticks = 0
    for child in ask_status(server.run_dir).children:
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return round(ticks / os.sysconf("SC_CLK_TCK"), 2)
