"""`quantization`: the worker's engine on CPU cores with plain weights and with quantised ones, in turns, on equal prompts."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from messages.errors import ConfigError
from ops.bench.children.line_child import ChildEnded
from ops.bench.engine_turns import EngineTurns, show_turns
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import write_json


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--forms", default="float32 none,bfloat16 none,float32 int8", help="What is compared; ratios are to the first.")
@click.option("--streams", default="1,8,32")
@click.option("--prompt-tokens", default=128)
@click.option("--new-tokens", default=128)
@click.option("--repeats", default=3, help="Interleaved; medians count.")
@click.option("--threads", default=0, help="Of each engine; 0: all cores. One thread waits for no other.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, forms: str, streams: str, prompt_tokens: int, new_tokens: int, repeats: int, threads: int, out: str | None
) -> None:
    """Tokens per second and processor time of a token after the prompts, for each form of the weights."""
    try:
        workers = {form: _worker(form) | {"threads": threads} for form in forms.split(",")}
        with contextlib.ExitStack() as stack:
            turns = EngineTurns(stack, model, workers)
            rows = [turns.compare(int(size), prompt_tokens, new_tokens, repeats) for size in streams.split(",")]
    except (ConfigError, ChildEnded, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "quantization", "machine": describe_machine(), "model": model or "smollm2", "new_tokens": new_tokens,
        "threads": threads, "rows": rows,
    }  # fmt: skip
    show_turns(f"weights, {result['model']}", list(workers), rows)
    write_json(result, out)


def _worker(form: str) -> dict[str, Any]:
    """What the section `worker` says for "float32 int8". Raises: ValueError."""
    match form.split():
        case [dtype, quantization]:
            return {"dtype": dtype, "quantization": quantization}
    raise ValueError(f'--forms: expected a dtype and a quantization each, such as "float32 int8", got "{form}"')
