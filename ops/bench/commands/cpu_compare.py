"""`cpu-compare`: this server and plain transformers on the same weights, the same machine, in one run."""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import dataclass

import click
from rich.table import Table

from messages.errors import ConfigError
from ops.bench.children.line_child import ChildEnded, LineChild
from ops.bench.children.worker_child import worker_child
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from supervisor.bench.serve_load import CONSOLE, LoadPlan, measure, write_json
from supervisor.config.server_config import load_config


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
        arguments = ["--model", model or "smollm2", "--gpus", "0", "--dtype", dtype, "--log-level", "warning", *server_args]
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(own_server(arguments))
            references = _references(stack, str(child.model_folder), dtype) if reference else []
            rows = [_compare(what, size, server, references, repeats) for size in sizes]
    except (ConfigError, ServerDidNotStart, ChildEnded, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "cpu-compare", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype,
        "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "waves": waves, "server_args": server_args,
        "start_s": round(server.start_s, 2), "streams": rows,
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _references(stack: contextlib.ExitStack, folder: str, dtype: str) -> list[LineChild]:
    """transformers twice, with its threads waiting as they do by default and passively: which is faster depends on what else
    the machine does, and the faster one counts. (Threads that wait actively would take a core from everybody else.)"""
    module = "ops.bench.children.transformers_child"
    ways: tuple[dict[str, str], ...] = ({}, {"OMP_WAIT_POLICY": "PASSIVE"})
    return [stack.enter_context(LineChild(module, folder, dtype, environment=way)) for way in ways]


def _compare(what: Comparison, size: int, server: OwnServer, references: list[LineChild], repeats: int) -> dict:
    """One row of the table: server and references take turns."""
    ours: list[dict] = []
    single: list[float] = []
    static: list[float] = []
    for turn in range(repeats):
        ours.append(_ours(server, what, size, turn))
        if references:
            single.append(max(_theirs(child, what, 1, turn) for child in references))
            static.append(max(_theirs(child, what, size, turn) for child in references) if size > 1 else single[-1])
    speeds = [result["output_tokens_per_s"] for result in ours]
    speed = statistics.median(speeds)
    row = {
        "streams": size,
        "ours_tokens_per_s": round(speed, 1),
        "ours_all": speeds,
        "ttft_p50_ms": ours[0]["ttft_ms"]["p50"],
        "tpot_p50_ms": ours[0]["tpot_ms"]["p50"],
        "errors": sum(len(result["requests"]["errors"]) for result in ours),
    }
    if references:
        row |= {"batch_1_tokens_per_s": round(statistics.median(single), 1), "batch_1_all": single}
        row |= {"static_tokens_per_s": round(statistics.median(static), 1), "static_all": static}
        row |= {"ratio_to_batch_1": round(speed / statistics.median(single), 2)}
        row |= {"ratio_to_static": round(speed / statistics.median(static), 2)}
    CONSOLE.print(row, highlight=False)
    return row


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


def _theirs(child: LineChild, what: Comparison, batch: int, turn: int) -> float:
    """Tokens per second of one static batch, after a few tokens of the same batch size that are not counted."""
    question = {"batch": batch, "prompt_tokens": what.prompt_tokens, "new_tokens": what.new_tokens, "seed": what.seed + turn}
    if turn == 0:
        child.ask(question | {"new_tokens": 2, "prompt_tokens": 8})
    return batch * what.new_tokens / child.ask(question)["wall_s"]


def _show(result: dict) -> None:
    tokens = f"{result['prompt_tokens']} -> {result['new_tokens']} tokens"
    table = Table(title=f"output tokens/s, {result['model']}, {result['dtype']}, {tokens}", title_justify="left")
    for column in ("streams", "this server", "TTFT p50, ms", "ms a token", "batch 1", "static batch", "ratio to static"):
        table.add_column(column, justify="right")
    for row in result["streams"]:
        table.add_row(
            str(row["streams"]), f"{row['ours_tokens_per_s']:.1f}", f"{row['ttft_p50_ms']:.0f}", f"{row['tpot_p50_ms']:.1f}",
            *(f"{row[key]:.1f}" if key in row else "" for key in ("batch_1_tokens_per_s", "static_tokens_per_s")),
            f"{row['ratio_to_static']:.2f}" if "ratio_to_static" in row else "",
        )  # fmt: skip
    CONSOLE.print(table)
