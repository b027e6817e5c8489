"""`kv-dtypes`: the worker's engine with plain keys and values and with compressed ones, in turns, on equal prompts."""

from __future__ import annotations

import contextlib

import click

from messages.errors import ConfigError
from ops.bench.children.line_child import ChildEnded
from ops.bench.engine_turns import EngineTurns, show_turns
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import CONSOLE, write_json


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
    workers = {kv_dtype: {"dtype": dtype, "kv_dtype": kv_dtype} for kv_dtype in kv_dtypes.split(",")}
    cases = [(int(size), int(n_in)) for n_in in prompt_tokens.split(",") for size in streams.split(",")]
    try:
        with contextlib.ExitStack() as stack:
            turns = EngineTurns(stack, model, workers)
            pages = turns.pages()
            rows = [turns.compare(size, n_in, new_tokens, repeats) for size, n_in in cases]
    except (ConfigError, ChildEnded, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "kv-dtypes", "machine": describe_machine(), "model": model or "smollm2", "dtype": dtype,
        "new_tokens": new_tokens, "pages": pages, "rows": rows,
    }  # fmt: skip
    show_turns(f"keys and values, {result['model']}, {dtype}", list(workers), rows)
    CONSOLE.print("pages:", pages, highlight=False)
    write_json(result, out)
