"""`urgent`: first tokens of urgent requests while others want all of the server, beside those of the idle one.

python -m ops.bench urgent --gpus 1 --model CONFIG_DIR --server-arg=--load-format=random \\
    --own "off=--set worker.urgent_stream=false" --own "on=--set worker.urgent_stream=true"

Each set of arguments gets a server of its own, one after the other. It is asked alone, then beside many requests of low
priority; urgent requests have all kinds of sampling in turns. The others' tokens a second say what the urgent ones cost.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from ops.bench.urgent.asked import NotAnswered, UrgentLoad, UrgentTimes, measured
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize


@click.command(context_settings={"show_default": True})
@click.option("--gpus", default=0, help="0: CPU cores.")
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--server-arg", "server_args", multiple=True, help="For all servers; may be repeated.")
@click.option("--own", "own", multiple=True, default=("default=",), help="NAME=ARGUMENTS of a server; may be repeated.")
@click.option("--urgent", type=click.IntRange(min=2), default=50, help="Urgent requests, one after the other.")
@click.option("--prompt", "prompt_tokens", type=click.IntRange(min=1), default=512, help="Tokens of each prompt.")
@click.option("--others", type=click.IntRange(min=1), default=330, help="Requests of low priority.")
@click.option("--slots", type=click.IntRange(min=1), default=256, help="So many of them must have a token before.")
@click.option("--other-tokens", type=click.IntRange(min=1), default=1500, help="Of each of their answers.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    gpus: int, model: str, server_args: tuple[str, ...], own: tuple[str, ...], urgent: int, prompt_tokens: int, others: int,
    slots: int, other_tokens: int, seed: int, out: str | None,
) -> None:  # fmt: skip
    """First tokens of urgent requests at saturation, beside an idle server."""
    load = UrgentLoad(urgent, prompt_tokens, others, slots, other_tokens, seed)
    flags = ["--gpus", str(gpus), "--no-standby", "--no-speculation", "--set", "scheduler.prefix_reuse=false"]
    flags += [*(["--model", model] if model else []), *server_args]
    result: dict[str, Any] = {}
    try:
        for name, _, words in (one.partition("=") for one in own):
            with own_server([*flags, *shlex.split(words)]) as server:
                result[name] = {"start_s": round(server.start_s, 2), **_figures(*asyncio.run(measured(server, load)))}
    except (ServerDidNotStart, NotAnswered) as error:
        raise click.ClickException(str(error)) from None
    _show(result, load)
    options = {"model": model or "smollm2", "gpus": gpus, "server_args": server_args, "own": own}
    told = {"bench": "urgent", "machine": describe_machine(), **options, "load": load, "servers": result}
    write_json(msgspec.to_builtins(told), out)


def _figures(idle: UrgentTimes, busy: UrgentTimes) -> dict[str, Any]:
    """Milliseconds of first tokens, and how many first tokens are the same beside others as alone."""
    found: dict[str, Any] = {}
    for name, times in (("idle", idle), ("saturated", busy)):
        for kind, seconds in {"all": times.all_s, **times.first_s}.items():
            if (summary := summarize(seconds)) is not None:
                found.setdefault(name, {})[kind] = summary.scaled(1e3, 2)
    return found | {
        "in_order_ms": [round(one * 1e3, 1) for one in busy.in_order_s],
        "p99_ratio": round(found["saturated"]["all"]["p99"] / found["idle"]["all"]["p99"], 3),
        "other_tokens_per_s": round(busy.other_tokens_per_s), "urgent_plans": busy.urgent_plans,
        "equal_first_tokens": sum(a == b for a, b in zip(idle.first_ids, busy.first_ids, strict=True)),
    }  # fmt: skip


def _show(result: dict[str, Any], load: UrgentLoad) -> None:
    title = f"first token of {load.urgent} urgent requests of {load.prompt_tokens} tokens, ms"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for column in ("server", "sampling", "idle", "p99", "busy", "p99", "ratio", "others", "beside"):
        table.add_column(column, no_wrap=True)
    for name, found in result.items():
        for kind, idle in found["idle"].items():
            busy, more = found["saturated"][kind], ["", "", ""]
            if kind == "all":
                more = [f"{found['p99_ratio']:.2f}", f"{found['other_tokens_per_s']:,}", str(found["urgent_plans"])]
            times = (idle["p50"], idle["p99"], busy["p50"], busy["p99"])
            table.add_row(name, kind, *(f"{one:.1f}" for one in times), *more)
    CONSOLE.print(table)
    CONSOLE.print(
        "idle, busy: p50. ratio: of p99, busy to idle. others: their tokens/s meanwhile. beside: urgent steps beside others"
    )
