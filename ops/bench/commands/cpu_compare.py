"""`cpu-compare`: this server and plain transformers on the same weights, the same machine, in one run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import click
from rich.table import Table

from messages.faults import ConfigError
from ops.bench.line_child import LineChild
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.serve_load import CONSOLE, LoadPlan, measure, write_json
from ops.bench.worker_child import worker_child
from supervisor.config import load_config


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    prompt_tokens: int
    new_tokens: int
    waves: int
    seed: int


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--dtype", default="bfloat16")
@click.option("--streams", default="1,8,32,64", help="Streams side by side, and sizes of the static batch.")
@click.option("--prompt-tokens", default=128)
@click.option("--new-tokens", default=128)
@click.option("--waves", default=2, help="Requests of each stream, one after the other (4 for a single stream).")
@click.option("--repeats", default=1, help="Whole comparisons; the median counts.")
@click.option("--reference/--no-reference", default=True, help="Measure transformers too.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, dtype: str, streams: str, prompt_tokens: int, new_tokens: int, waves: int, repeats: int, reference: bool,
    server_args: tuple[str, ...], seed: int, out: str | None,
) -> None:  # fmt: skip
    """Output tokens per second over HTTP at several numbers of streams, next to `transformers` generate()."""
    sizes = [int(size) for size in streams.split(",")]
    what = Comparison(prompt_tokens, new_tokens, waves, seed)
    try:
        child = worker_child(load_config(None, [{"model": model, "worker": {"dtype": dtype}}]))
        arguments = ["--model", model or "smollm2", "--dtype", dtype, "--log-level", "warning", *server_args]
        with own_server(arguments) as server:
            ours = {size: [_ours(server, what, size, turn) for turn in range(repeats)] for size in sizes}
            start_s = server.start_s
    except (ConfigError, ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None
    theirs = _reference(what, str(child.model_folder), dtype, sorted({1, *sizes}), repeats) if reference else {}
    result = {
        "bench": "cpu-compare", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype,
        "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "waves": waves, "server_args": server_args,
        "start_s": round(start_s, 2), "streams": [_row(size, ours, theirs) for size in sizes],
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _ours(server: OwnServer, what: Comparison, streams: int, turn: int) -> dict:
    plan = LoadPlan(
        server.url,
        input_lengths=str(what.prompt_tokens),
        output_lengths=str(what.new_tokens),
        concurrency=streams,
        requests=streams * what.waves if streams > 1 else max(what.waves, 4),
        warmup=1,
        seed=what.seed + turn,
    )
    return measure(plan)


def _reference(what: Comparison, folder: str, dtype: str, sizes: list[int], repeats: int) -> dict[int, list[float]]:
    """Tokens per second of transformers, the better of two ways in which its threads may wait: which one that is depends on
    what else the machine does."""
    ways: list[dict[int, list[float]]] = []
    for wait in ("ACTIVE", "PASSIVE"):
        environment = {"OMP_WAIT_POLICY": wait}
        with LineChild("ops.bench.transformers_child", folder, dtype, environment=environment) as child:
            child.ask(_question(what, 1, 0) | {"new_tokens": 4})
            ways.append({size: [_theirs(child, what, size, turn) for turn in range(repeats)] for size in sizes})
    return {size: max((way[size] for way in ways), key=statistics.median) for size in sizes}


def _question(what: Comparison, batch: int, turn: int) -> dict:
    tokens = {"prompt_tokens": what.prompt_tokens, "new_tokens": what.new_tokens}
    return {"batch": batch, **tokens, "seed": what.seed + turn}


def _theirs(child: LineChild, what: Comparison, batch: int, turn: int) -> float:
    return batch * what.new_tokens / child.ask(_question(what, batch, turn))["wall_s"]


def _row(size: int, ours: dict[int, list[dict]], theirs: dict[int, list[float]]) -> dict:
    speeds = [result["output_tokens_per_s"] for result in ours[size]]
    speed = statistics.median(speeds)
    row = {
        "streams": size,
        "ours_tokens_per_s": round(speed, 1),
        "ours_all": speeds,
        "ttft_p50_ms": ours[size][0]["ttft_ms"]["p50"],
        "tpot_p50_ms": ours[size][0]["tpot_ms"]["p50"],
        "errors": sum(len(result["requests"]["errors"]) for result in ours[size]),
    }
    if theirs:
        single, static = statistics.median(theirs[1]), statistics.median(theirs[size])
        row |= {"transformers_batch_1": round(single, 1), "transformers_static": round(static, 1)}
        row |= {"ratio_to_batch_1": round(speed / single, 2), "ratio_to_static": round(speed / static, 2)}
    return row


def _show(result: dict) -> None:
    tokens = f"{result['prompt_tokens']} -> {result['new_tokens']} tokens"
    table = Table(title=f"output tokens/s, {result['model']}, {result['dtype']}, {tokens}", title_justify="left")
    for column in ("streams", "this server", "TTFT p50, ms", "ms a token", "batch 1", "static batch", "ratio to static"):
        table.add_column(column, justify="right")
    for row in result["streams"]:
        table.add_row(
            str(row["streams"]), f"{row['ours_tokens_per_s']:.1f}", f"{row['ttft_p50_ms']:.0f}", f"{row['tpot_p50_ms']:.1f}",
            *(f"{row[key]:.1f}" if key in row else "" for key in ("transformers_batch_1", "transformers_static")),
            f"{row['ratio_to_static']:.2f}" if "ratio_to_static" in row else "",
        )  # fmt: skip
    CONSOLE.print(table)
