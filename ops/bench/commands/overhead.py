"""`overhead`: the whole actor system over HTTP against the worker's engine driven directly, same settings, same work.

Both sides are handed all prompts at once and hand back all tokens (`/v1/batch`), so the difference is the actors, the journal
and the messages. `--streamed` asks for one stream each instead: then the clients that read token by token, on the same
machine, are in it too.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import urllib.request
from collections.abc import Callable

import click
from rich.table import Table

from messages.errors import ConfigError
from ops.bench.children.line_child import LineChild
from ops.bench.children.worker_child import WorkerChild, worker_child
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from supervisor.bench.prompts import random_ids
from supervisor.bench.serve_load import CONSOLE, LoadPlan, measure, write_json
from supervisor.config.server_config import load_config

_DEADLINE_S = 900.0


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--dtype", default="bfloat16")
@click.option("--gpus", default=0, help="0 or 1; the direct engine is one rank.")
@click.option("--streams", default="1,8,32")
@click.option("--prompt-tokens", default=128)
@click.option("--new-tokens", default=128)
@click.option("--repeats", default=3, help="Interleaved; medians count.")
@click.option("--streamed", is_flag=True, help="One HTTP stream for each sequence; the load tool's share is in the cost then.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, dtype: str, gpus: int, streams: str, prompt_tokens: int, new_tokens: int, repeats: int,
    streamed: bool, server_args: tuple[str, ...], out: str | None,
) -> None:  # fmt: skip
    """What gateway, scheduler, journal, messages and HTTP cost over calling the engine."""
    flags = {"model": model, "gpus": gpus, "worker": {} if model == "hash-chain" else {"dtype": dtype}}
    arguments = ["--gpus", str(gpus), "--log-level", "warning", "--no-speculation", *server_args]
    arguments += ["--model", model] if model else []
    arguments += [] if model == "hash-chain" else ["--dtype", dtype]
    lengths = (prompt_tokens, new_tokens)
    try:
        child = worker_child(load_config(None, [flags]))
        with (
            LineChild("ops.bench.children.direct_child", child.settings.decode(), environment=child.environment) as direct,
            own_server(arguments) as server,
        ):
            ask = _ask_streamed if streamed else _ask_whole
            rows = [_compare(server, direct, child, ask, int(size), lengths, repeats) for size in streams.split(",")]
    except (ConfigError, ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "overhead", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype, "gpus": gpus,
        "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "streamed": streamed, "server_args": server_args,
        "streams": rows,
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _ask_streamed(url: str, streams: int, lengths: tuple[int, int], vocabulary: int, seed: int) -> float:
    plan = {"concurrency": streams, "input_lengths": str(lengths[0]), "vocabulary": vocabulary}
    result = measure(LoadPlan(url, requests=streams, output_lengths=str(lengths[1]), seed=seed, **plan))
    if result["requests"]["errors"]:
        raise ValueError(f"requests: expected no errors, got {result['requests']['errors']}")
    return result["wall_s"]


def _ask_whole(url: str, streams: int, lengths: tuple[int, int], vocabulary: int, seed: int) -> float:
    rng = random.Random(seed)
    prompts = [random_ids(lengths[0], rng, vocabulary) for _ in range(streams)]
    body = {"tokens": prompts, "max_tokens": lengths[1], "temperature": 0.0, "ignore_eos": True}
    request = urllib.request.Request(f"{url}/v1/batch", json.dumps(body).encode(), {"Content-Type": "application/json"})
    began_s = time.perf_counter()
    with urllib.request.urlopen(request, timeout=_DEADLINE_S) as response:
        answer = json.load(response)
    wall_s = time.perf_counter() - began_s
    got = [len(output["tokens"]) for output in answer["results"]]
    if got != [lengths[1]] * streams:
        raise ValueError(f"results: expected {streams} of {lengths[1]} tokens, got {got}")
    return wall_s


def _compare(
    server: OwnServer,
    direct: LineChild,
    child: WorkerChild,
    ask: Callable[[str, int, tuple[int, int], int, int], float],
    streams: int,
    lengths: tuple[int, int],
    repeats: int,
) -> dict:
    """All streams begin at once on both sides; both sides take turns."""
    vocabulary = min(child.vocabulary, 10_000)
    question = {"lengths": [lengths] * streams, "temperature": 0.0, "vocabulary": vocabulary}
    direct.ask(question | {"seed": 0, "lengths": [(lengths[0], 4)] * streams})
    ask(server.url, streams, (lengths[0], 4), vocabulary, 0)
    direct_s, server_s, steps = [], [], 0
    for seed in range(1, repeats + 1):
        times = direct.ask(question | {"seed": seed})
        steps = times["n_steps"]
        direct_s.append(times["wall_s"])
        server_s.append(ask(server.url, streams, lengths, vocabulary, seed))
    ours, bare = statistics.median(server_s), statistics.median(direct_s)
    tokens = streams * lengths[1]
    return {
        "streams": streams, "direct_tokens_per_s": round(tokens / bare, 1), "server_tokens_per_s": round(tokens / ours, 1),
        "cost_percent": round((ours / bare - 1) * 100, 2), "cost_per_step_us": round((ours - bare) / steps * 1e6, 1),
        "direct_s": [round(s, 4) for s in direct_s], "server_s": [round(s, 4) for s in server_s],
    }  # fmt: skip


def _show(result: dict) -> None:
    table = Table(title=f"cost of the actor system, {result['model']}, {result['dtype']}", title_justify="left")
    for column in ("streams", "engine, tokens/s", "server, tokens/s", "cost", "a step, us"):
        table.add_column(column, justify="right")
    for row in result["streams"]:
        table.add_row(
            str(row["streams"]), f"{row['direct_tokens_per_s']:.1f}", f"{row['server_tokens_per_s']:.1f}",
            f"{row['cost_percent']:.1f} %", f"{row['cost_per_step_us']:.0f}",
        )  # fmt: skip
    CONSOLE.print(table)
