"""`kill-drill`: servers of our own, HTTP and ZeroMQ clients, faults of every actor in every phase, every token checked.

With `--servers J` the faults are shared out among J servers side by side, each with a run directory, a port, clients and a seed
of its own. A server with two replicas and two gateways takes one to two faults a second and about 1.3 cores. 2,000 faults on a
machine with 16 cores within five minutes, with one summary as JSON:

    python -m ops.bench kill-drill --servers 10 --faults 2000 --limit-s 280 --server-arg=--replicas --server-arg=2 \
        --server-arg=--gateways --server-arg=2 --out kills.json
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import click
from rich.markup import escape
from rich.table import Table

from ops.bench.campaign.fault_schedule import Harm, coverage
from ops.bench.campaign.part import CampaignPart, PartResult, run_part
from ops.bench.machine import describe_machine
from ops.bench.own_server import free_ports
from ops.bench.side_by_side import FailedPart, side_by_side
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.drill.figures import add_up, as_json
from supervisor.drill.report import print_report

_ERRORS = 16


@click.command(context_settings={"show_default": True})
@click.option("--model", default="hash-chain", help="As for `supervisor start`; smollm2 is the packaged model.")
@click.option("--step-ms", default=5.0, help="Artificial time of one step of the hash chain.")
@click.option("--streams", default=18, help="Streams of an episode: a third each over ZeroMQ, HTTP with a key, plain HTTP.")
@click.option("--prompt-words", default=200)
@click.option("--output-tokens", default=300)
@click.option("--faults", "n_faults", default=60, help="Faults before the drain.")
@click.option("--target", "targets", multiple=True, help="A role (worker, gateway, supervisor, ...); repeatable. Default: all.")
@click.option("--harm", "harms", multiple=True, type=click.Choice([h.value for h in Harm]), help="Repeatable. Default: all.")
@click.option("--drain/--no-drain", "drains", default=True, help="End with a drain under faults.")
@click.option("--sampled-share", default=0.5, help="Streams of the hash chain with temperature 1 and a seed, 0 to 1.")
@click.option("--alike", "n_alike", type=click.IntRange(1), default=1, help="Streams that ask the same at the same time.")
@click.option("--deadline", "deadline_s", default=120.0, help="Seconds for one stream.")
@click.option("--servers", "n_servers", default=1, help="Servers side by side that share the faults.")
@click.option("--limit-s", default=math.inf, help="No server begins new streams after so many seconds.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, step_ms: float, streams: int, prompt_words: int, output_tokens: int, n_faults: int, targets: tuple[str, ...],
    harms: tuple[str, ...], drains: bool, sampled_share: float, n_alike: int, deadline_s: float, n_servers: int, limit_s: float,
    server_args: tuple[str, ...], seed: int, out: str | None,
) -> None:  # fmt: skip
    """Harm processes of a server under load. Exit status 1 when a stream was lost or a token was wrong."""
    chosen = tuple(Harm(one) for one in harms) or tuple(Harm)
    whole = CampaignPart(
        model, step_ms, streams, prompt_words, output_tokens, n_faults, targets, chosen, drains,
        sampled_share, deadline_s, limit_s, server_args, seed, port=0, n_alike=n_alike,
    )  # fmt: skip
    began_s = time.monotonic()
    found, failures = PartResult(), list[str]()
    for one in side_by_side(run_part, whole.split(free_ports(n_servers))):
        if isinstance(one, FailedPart):
            failures.append(f"server {one.part}: {one.error}")
        else:
            found.add(one)
    figures = _report(found, failures, f"kill-drill of {model}")
    if len(failures) == n_servers:
        raise click.ClickException(failures[0])
    facts = {"model": model, "server_args": server_args, "prompt_words": prompt_words, "output_tokens": output_tokens}
    facts |= {"servers": n_servers, "seed": seed, "wall_s": round(time.monotonic() - began_s, 1)}
    write_json({"bench": "kill-drill", "machine": describe_machine(), **facts, **figures}, out)
    raise SystemExit(0 if figures["right"] == figures["streams"] and not failures else 1)


def _report(found: PartResult, failures: list[str], title: str) -> dict[str, object]:
    """Print what was found; returns it for the JSON. Its `summary` has one row for each fault and role, in all phases."""
    rows = [tally.row for tally in found.tallies]
    by_role = [replace(tally, fault=tally.fault.partition(",")[0]) for tally in found.tallies]
    summary = sorted((tally.row for tally in add_up(by_role)), key=lambda row: row.fault)
    print_report(summary, title, CONSOLE)
    covered = coverage(found.inflicted)
    _show_coverage(covered)
    n_streams, totals = found.outcomes.total(), {name: found.outcomes[name] for name in ("right", "wrong", "lost")}
    CONSOLE.print(f"{len(found.inflicted)} faults, {n_streams} streams: {totals}", highlight=False)
    for line in (*found.errors[:_ERRORS], *failures, *(f"log: {log}" for log in found.logs)):
        CONSOLE.print(f"[red]{escape(line)}[/red]", highlight=False)
    return {
        **as_json(rows, {"faults": len(found.inflicted), "streams": n_streams, **totals}),
        "summary": as_json(summary, {})["rows"],
        "covered": covered,
        "errors": found.errors[:_ERRORS],
        "failures": failures,
        "logs": found.logs,
    }


def _show_coverage(covered: dict[str, dict[str, dict[str, int]]]) -> None:
    table = Table(title="faults: kill, pause, freeze", title_justify="left")
    phases = list(dict.fromkeys(phase for by_phase in covered.values() for phase in by_phase))
    for column in ("actor", *phases):
        table.add_column(column)
    for role, by_phase in covered.items():
        cells = [" ".join(str(by_phase.get(phase, {}).get(harm.value, 0)) for harm in Harm) for phase in phases]
        table.add_row(role, *cells)
    CONSOLE.print(table)
