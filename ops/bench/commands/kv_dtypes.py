"""`kv-dtypes`: the worker's engine with plain keys and values and with compressed ones, in turns, on equal prompts."""

from __future__ import annotations

import contextlib
import statistics

import click
from rich.table import Table

from messages.errors import ConfigError
from ops.bench.children.line_child import ChildEnded, LineChild
from ops.bench.children.worker_child import worker_child
from ops.bench.machine import describe_machine
from ops.bench.serve_load import CONSOLE, write_json
from supervisor.config.server_config import load_config

_MOST_VOCABULARY = 10_000


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--dtype", default="bfloat16")
@click.option("--kv-dtypes", default="auto,int8", help="What is compared; ratios are to the first.")
@click.option("--streams", default="1,32")
@click.option("--prompt-tokens", default="128,2048")
@click.option("--new-tokens", default=64)
@click.option("--repeats", default=3, help="Interleaved; medians count.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, dtype: str, kv_dtypes: str, streams: str, prompt_tokens: str, new_tokens: int, repeats: int, out: str | None
) -> None:
    """Pages in the same memory, and tokens per second after the prompts, for each dtype of keys and values."""
    try:
        with contextlib.ExitStack() as stack:
            engines: dict[str, LineChild] = {}
            vocabulary = _MOST_VOCABULARY
            for kv_dtype in kv_dtypes.split(","):
                worker = {"dtype": dtype, "kv_dtype": kv_dtype}
                child = worker_child(load_config(None, [{"model": model, "gpus": 0, "worker": worker}]))
                vocabulary = min(vocabulary, child.vocabulary)
                module = "ops.bench.children.direct_child"
                started = LineChild(module, child.settings.decode(), environment=child.environment)
                engines[kv_dtype] = stack.enter_context(started)
            pages = {name: engine.ask({})["n_pages"] for name, engine in engines.items()}
            rows = [
                _compare(engines, int(size), int(n_in), new_tokens, vocabulary, repeats)
                for n_in in prompt_tokens.split(",")
                for size in streams.split(",")
            ]
    except (ConfigError, ChildEnded, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "kv-dtypes", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype,
        "new_tokens": new_tokens, "pages": pages, "rows": rows,
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _compare(engines: dict[str, LineChild], streams: int, n_in: int, n_out: int, vocabulary: int, repeats: int) -> dict:
    """One case: tokens/s of all streams after the last prompt, and seconds until then."""
    question = {"lengths": [(n_in, n_out)] * streams, "temperature": 0.0, "vocabulary": vocabulary}
    for engine in engines.values():
        engine.ask(question | {"seed": 0, "lengths": [(min(n_in, 128), 4)] * streams})
    found: dict[str, list[dict]] = {name: [] for name in engines}
    for seed in range(1, repeats + 1):
        for name, engine in engines.items():
            found[name].append(engine.ask(question | {"seed": seed}))
    row: dict = {"streams": streams, "prompt_tokens": n_in}
    for name, times in found.items():
        speeds = [streams * n_out / (one["wall_s"] - one["prefill_s"]) for one in times]
        row[name] = {
            "tokens_per_s": round(statistics.median(speeds), 1),
            "prefill_s": round(statistics.median(one["prefill_s"] for one in times), 3),
            "all": [round(speed, 1) for speed in speeds],
        }
    return row


def _show(result: dict) -> None:
    names = list(result["pages"])
    table = Table(title=f"keys and values, {result['model']}, {result['dtype']}", title_justify="left")
    speeds_of, prompts_of = ([f"{name}, {what}" for name in names] for what in ("tokens/s", "prompts, s"))
    for column in ("streams", "prompt", *speeds_of, "ratio", *prompts_of):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        speeds = [row[name]["tokens_per_s"] for name in names]
        prompts = [f"{row[name]['prefill_s']:.2f}" for name in names]
        cells = (str(row["streams"]), str(row["prompt_tokens"]), *map(str, speeds), f"{speeds[-1] / speeds[0]:.2f}", *prompts)
        table.add_row(*cells)
    CONSOLE.print(table)
    CONSOLE.print("pages:", result["pages"], highlight=False)
