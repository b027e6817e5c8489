"""`kill-drill`: a server of our own, streams of ZeroMQ clients, kill -9 again and again, every token checked."""

from __future__ import annotations

import asyncio

import click
from rich.table import Table

from messages.errors import ConfigError
from messages.run_dir import front_endpoint
from ops.bench.drill_figures import drill_figures
from ops.bench.kill_drill import DrillPlan, KillDrill
from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from ops.bench.serve_load import CONSOLE, write_json
from supervisor.operator.calls import NoServer, ask_status

_UNBOUNDED = ["--set", "supervisor.actor_restarts=1000000", "--set", "supervisor.gang_restarts=1000000"]
_HASH_CHAIN_VOCABULARY = 32_768


@click.command(context_settings={"show_default": True})
@click.option("--model", default="hash-chain", help="As for `supervisor start`; smollm2 is the packaged model.")
@click.option("--step-ms", default=2.0, help="Artificial time of one step of the hash chain.")
@click.option("--streams", default=32)
@click.option("--prompt-tokens", default=48)
@click.option("--output-tokens", default=512)
@click.option("--duration", "duration_s", default=30.0, help="Seconds of killing; then running streams may end.")
@click.option("--every", "every_s", default=2.0, help="Seconds between two kills, on average.")
@click.option("--target", default="random", help="random, a role (worker, scheduler, gateway, ...) or a name (worker/0.1).")
@click.option(
    "--sampled-share", type=float,
    help="Streams with temperature 1 and a seed, 0 to 1. Default: 0.5 for the hash chain; 0 for a real model, where rounding"
    " that depends on the batch may tip a draw that lies on the edge between two tokens.",
)  # fmt: skip
@click.option("--vocabulary", default=10_000, help="Prompts of a real model are drawn below it.")
@click.option("--deadline", "deadline_s", default=120.0, help="Seconds for one stream.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, step_ms: float, streams: int, prompt_tokens: int, output_tokens: int, duration_s: float, every_s: float,
    target: str, sampled_share: float | None, vocabulary: int, deadline_s: float, server_args: tuple[str, ...], seed: int,
    out: str | None,
) -> None:  # fmt: skip
    """Kill processes of a server under load. Exit status 1 when a stream was lost or a token was wrong."""
    is_chain = model == "hash-chain"
    plan = DrillPlan(
        streams, prompt_tokens, output_tokens, duration_s, every_s, target, seed,
        _HASH_CHAIN_VOCABULARY if is_chain else vocabulary, deadline_s, is_chain,
        (0.5 if is_chain else 0.0) if sampled_share is None else sampled_share,
    )  # fmt: skip
    chain = ["--set", f"worker.hash_chain_step_s={step_ms / 1e3}"] if is_chain else []
    try:
        with own_server(
            ["--model", model, "--gpus", "0", *chain, "--log-level", "warning", *_UNBOUNDED, *server_args]
        ) as server:
            drill = KillDrill(server, front_endpoint(server.run_dir), plan)
            asyncio.run(drill.run())
            restarts = {child.name: child.restarts for child in ask_status(server.run_dir).children}
    except (ConfigError, ServerDidNotStart, NoServer, ValueError) as error:
        raise click.ClickException(str(error)) from None
    figures = drill_figures(drill.kills, drill.seen)
    result = {
        "bench": "kill-drill", "machine": describe_machine(), "model": model, "streams_at_once": streams,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "every_s": every_s, "target": target,
        "server_args": server_args, "restarts": restarts, **figures,
    }  # fmt: skip
    _show(result)
    write_json(result, out)
    raise SystemExit(0 if figures["right"] == figures["streams"] > 0 else 1)


def _show(result: dict) -> None:
    table = Table(title=f"pauses after kill -9, ms ({result['model']})", title_justify="left")
    for column in ("killed", "kills", "streams met", "p50", "p90", "p99", "max"):
        table.add_column(column, justify="left" if column == "killed" else "right")
    rows = [*result["pause_ms_by_role"].items(), ("all", result["pause_ms"])]
    for role, pause in rows:
        if pause:
            kills = result["kills_by_role"].get(role, result["kills"])
            table.add_row(role, str(kills), str(pause["count"]), *(f"{pause[key]:.0f}" for key in ("p50", "p90", "p99", "max")))
    CONSOLE.print(table)
    CONSOLE.print(
        f"{result['kills']} kills, {result['streams']} streams, {result['tokens']} tokens: "
        f"{result['right']} right, {result['wrong']} wrong ({result['wrong_greedy']} greedy), {result['lost']} lost"
    )
    for place in result["wrong_first"]:
        CONSOLE.print(f"[red]wrong[/red]: {place}", highlight=False)
    for error in result["errors"]:
        CONSOLE.print(f"[red]{error}[/red]", highlight=False)
