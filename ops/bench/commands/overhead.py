"""`overhead`: the whole actor system over HTTP against the worker's engine driven directly, same settings, same plan shapes."""

from __future__ import annotations

import statistics

import click
from rich.table import Table

from messages.faults import ConfigError
from ops.bench.line_child import LineChild
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.serve_load import CONSOLE, LoadPlan, measure, write_json
from ops.bench.worker_child import WorkerChild, worker_child
from supervisor.config import load_config


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--dtype", default="bfloat16")
@click.option("--gpus", default=0, help="0 or 1; the direct engine is one rank.")
@click.option("--streams", default="1,8,32")
@click.option("--prompt-tokens", default=128)
@click.option("--new-tokens", default=128)
@click.option("--repeats", default=3, help="Interleaved; medians count.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, dtype: str, gpus: int, streams: str, prompt_tokens: int, new_tokens: int, repeats: int,
    server_args: tuple[str, ...], out: str | None,
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
            LineChild("ops.bench.direct_child", child.settings.decode(), environment=child.environment) as direct,
            own_server(arguments) as server,
        ):
            rows = [_compare(server, direct, child, int(size), lengths, repeats) for size in streams.split(",")]
    except (ConfigError, ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "overhead", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype, "gpus": gpus,
        "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "server_args": server_args, "streams": rows,
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _compare(
    server: OwnServer, direct: LineChild, child: WorkerChild, streams: int, lengths: tuple[int, int], repeats: int
) -> dict:
    """All streams begin at once on both sides; both sides take turns."""
    vocabulary = min(child.vocabulary, 10_000)
    question = {"lengths": [lengths] * streams, "temperature": 0.0, "vocabulary": vocabulary}
    plan = {"concurrency": streams, "input_lengths": str(lengths[0]), "vocabulary": vocabulary}
    direct.ask(question | {"seed": 0, "lengths": [(lengths[0], 4)] * streams})
    measure(LoadPlan(server.url, requests=streams, output_lengths="4", seed=0, **plan))
    direct_s, server_s, steps = [], [], 0
    for seed in range(1, repeats + 1):
        times = direct.ask(question | {"seed": seed})
        steps = times["n_steps"]
        direct_s.append(times["wall_s"])
        result = measure(LoadPlan(server.url, requests=streams, output_lengths=str(lengths[1]), seed=seed, **plan))
        if result["requests"]["errors"]:
            raise ValueError(f"requests: expected no errors, got {result['requests']['errors']}")
        server_s.append(result["wall_s"])
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
