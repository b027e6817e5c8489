"""`watch-cost`: what everything costs that watches a server, in tokens a second and in processor time.

Whole servers take turns in an order that is drawn anew for each round: two without access log, log file, vLLM's names and GPU
monitor, and two with their defaults. The latter have two turns: nobody looks, and somebody scrapes /metrics each second and has
the page open. The watchers are threads of this process, beside the clients. Two servers of one kind differ by chance, by 2 to
5 % on two cores; the result says by how much they did, and a cost below that is not shown by the rate, only by processor time.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click
import msgspec
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart
from ops.bench.watching.ratios import Rounds, noise_of, ratio_of
from ops.bench.watching.served import Served, WatchKind, served
from ops.bench.watching.watchers import NotWatched
from supervisor.bench.serve_load import CONSOLE, LoadPlan, write_json

_HASH_CHAIN = "hash-chain"
_SHARE = 0.8  # of a GPU's memory, for all servers together
_PAIRS = ((WatchKind.DEFAULT, WatchKind.OFF), (WatchKind.WATCHED, WatchKind.DEFAULT), (WatchKind.WATCHED, WatchKind.OFF))


@click.command(context_settings={"show_default": True})
@click.option("--model", "models", multiple=True, default=("smollm2", _HASH_CHAIN), help="As for start; repeatable.")
@click.option("--gpus", default=0, help="Of each server, the same ones for all. The hash chain has none.")
@click.option("--rounds", default=8, type=click.IntRange(2), help="Of each kind of each server.")
@click.option("--round-s", default=3.0, type=click.FloatRange(0.0, min_open=True), help="About so long takes each.")
@click.option("--each", "n_each", default=2, type=click.IntRange(1), help="Servers of each set of flags; 2 show the noise.")
@click.option("--concurrency", default=16)
@click.option("--input", "n_prompt", default=128, help="Tokens of a prompt.")
@click.option("--output", "n_output", default=64, help="Tokens of an answer.")
@click.option("--seed", default=1, help="Of prompts, and of the order of servers.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here.")
def command(
    models: tuple[str, ...], gpus: int, rounds: int, round_s: float, n_each: int, concurrency: int, n_prompt: int,
    n_output: int, seed: int, server_args: tuple[str, ...], out: str | None,
) -> None:  # fmt: skip
    """What it costs that a server is watched."""
    plan = LoadPlan(
        "", input_lengths=str(n_prompt), output_lengths=str(n_output), concurrency=concurrency, requests=2 * concurrency
    )
    result: dict[str, Any] = {
        "bench": "watch-cost", "machine": describe_machine(), "gpus": gpus, "rounds": rounds, "round_s": round_s,
        "servers_of_each": n_each, "concurrency": concurrency, "input": n_prompt, "output": n_output, "seed": seed,
        "server_args": server_args, "models": {},
    }  # fmt: skip
    for model in models:
        try:
            found = _measured(model, gpus, n_each, plan, rounds, round_s, random.Random(seed), server_args)
        except (ServerDidNotStart, NotWatched) as error:
            raise click.ClickException(str(error)) from None
        _show(model, found)
        result["models"][model] = found
    write_json(msgspec.to_builtins(result), out)


def _measured(
    model: str, gpus: int, n_each: int, plan: LoadPlan, rounds: int, round_s: float, rng: random.Random,
    server_args: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    """The servers of one model in turns."""
    load = os.getloadavg()[0]
    sets = [(WatchKind.OFF,), (WatchKind.DEFAULT, WatchKind.WATCHED)] * n_each
    gpus = 0 if model == _HASH_CHAIN else gpus
    share = ("--set", f"worker.memory_share={_SHARE / len(sets):.3f}") if gpus else ()
    flags = ("--model", model, "--gpus", str(gpus), "--no-speculation", *share, *server_args)
    with ExitStack() as stack:
        servers = [stack.enter_context(served(kinds, flags)) for kinds in sets]
        plan = replace(plan, requests=max(one.requests_for(plan, round_s) for one in servers))
        turns = [(server, kind) for server in servers for kind in server.by_kind]
        for _ in range(rounds):
            for server, kind in rng.sample(turns, len(turns)):  # new prompts each time: no prefix is known
                server.round(replace(plan, seed=rng.randrange(1 << 30)), kind)
    loads = [round(one, 1) for one in (load, os.getloadavg()[0])]
    return {"requests_of_a_round": plan.requests, "load": loads, **_figures(servers)}


def _figures(servers: list[Served]) -> dict[str, Any]:
    """Rates and processor time by kind, their ratios, and the noise."""
    of = {kind: [one.by_kind[kind] for one in servers if kind in one.by_kind] for kind in WatchKind}
    found: dict[str, Any] = {
        "scrapes": sum(one.n_scrapes for one in of[WatchKind.WATCHED]),
        "page_events": sum(one.n_page_events for one in of[WatchKind.WATCHED]),
    }
    for name in ("tokens_per_s", "cpu_us"):
        rows: dict[WatchKind, list[Rounds]] = {kind: [getattr(one, name) for one in of[kind]] for kind in WatchKind}
        found[name] = {
            "rounds": {kind: [[round(x, 1) for x in one] for one in row] for kind, row in rows.items()},
            "ratios": {f"{kind} / {other}": ratio_of(rows[kind], rows[other]) for kind, other in _PAIRS},
            "noise": noise_of(list(rows.values())),
        }
    return found


def _show(model: str, found: dict[str, Any]) -> None:
    title = f"{model}: median of the rounds (middle half), load {found['load'][0]} to {found['load'][1]}"
    table = Table("kind / other kind", "tokens/s", "processor time of a token", title=title, title_justify="left")
    rates, times = found["tokens_per_s"], found["cpu_us"]
    for pair, ratio in rates["ratios"].items():
        table.add_row(pair, ratio.text(), times["ratios"][pair].text())
    table.add_row("noise: two servers of one kind", f"{rates['noise']:.2%}", f"{times['noise']:.2%}")
    CONSOLE.print(table)
