"""`day`: a server with API keys, clients of several tenants, and a process that is killed every half minute.

Every third client speaks ZeroMQ, the others HTTP. A client that gets an error counts it and asks something else: nothing is
repeated, so availability is what a client without any retries sees. Two hours:

    python -m ops.bench day --length-s 7200 --clients 200 --tenants 4 --kill-every-s 30 \
        --server-arg=--gateways --server-arg=2 --server-arg=--replicas --server-arg=2 --svg day.svg
"""

from __future__ import annotations

from pathlib import Path

import click

from ops.bench.day.day import DayPlan, run_day
from ops.bench.day.report import day_as_json, print_day, write_day_svg
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import CONSOLE, write_json


@click.command(context_settings={"show_default": True})
@click.option("--model", default="hash-chain", help="As for `supervisor start`; of the hash chain every token is checked.")
@click.option("--step-ms", default=5.0, help="Artificial time of one step of the hash chain.")
@click.option("--length-s", default=600.0, help="Seconds in which clients ask.")
@click.option("--tenants", "n_tenants", type=click.IntRange(1), default=4)
@click.option("--clients", "n_clients", type=click.IntRange(1), default=200, help="Of all tenants together.")
@click.option("--think-s", default=4.0, help="Mean pause of the clients of the first tenant; twice that of the second, ...")
@click.option("--prompt-words", default=100, help="Of the longest prompt.")
@click.option("--output-tokens", default=128, help="Of the longest answer.")
@click.option("--kill-every-s", default=30.0)
@click.option(
    "--role", "roles", multiple=True, help="A role to kill (worker, gateway, supervisor, ...); repeatable. Default: all."
)
@click.option("--deadline", "deadline_s", default=120.0, help="Seconds for one answer.")
@click.option("--wanted", default=0.999, help="Exit status 1 when the availability is less.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--svg", "svg_path", type=click.Path(dir_okay=False, path_type=Path), help="Draw the report here.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, step_ms: float, length_s: float, n_tenants: int, n_clients: int, think_s: float, prompt_words: int,
    output_tokens: int, kill_every_s: float, roles: tuple[str, ...], deadline_s: float, wanted: float,
    server_args: tuple[str, ...], seed: int, svg_path: Path | None, out: str | None,
) -> None:  # fmt: skip
    """How available a server is while its processes die. Exit status 1 when it is less than wanted, or a token was wrong."""
    plan = DayPlan(
        model, length_s, n_tenants, n_clients, think_s, prompt_words, output_tokens, kill_every_s, deadline_s, step_ms,
        roles, server_args, seed,
    )  # fmt: skip
    figures = run_day(plan, lambda line: CONSOLE.print(line, highlight=False, markup=False))
    title = f"{model}: {n_clients} clients of {n_tenants} tenants for {length_s:g} s, a death every {kill_every_s:g} s"
    print_day(figures, title, CONSOLE)
    if svg_path is not None:
        write_day_svg(figures, title, svg_path)
    facts = {"model": model, "server_args": server_args, "length_s": length_s, "clients": n_clients, "tenants": n_tenants}
    facts |= {"think_s": think_s, "kill_every_s": kill_every_s, "seed": seed}
    write_json({"bench": "day", "machine": describe_machine(), **facts, **day_as_json(figures)}, out)
    raise SystemExit(0 if figures.availability >= wanted and not figures.wrong else 1)
