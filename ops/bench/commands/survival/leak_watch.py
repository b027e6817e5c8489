"""`leak-watch`: servers of our own, many requests of all kinds, many kills of each actor, and nothing that lives on grows.

The promise is one of each server, so one server for as long as possible shows most. On a machine with 16 cores:

    python -m ops.bench leak-watch --requests 1000000 --restarts 1000 --clients 8 --at-once 96 \
        --server-arg=--gateways --server-arg=4 --server-arg=--replicas --server-arg=2 --server-arg=--vault

With `--servers J` requests and restarts are shared out among J servers side by side (about three cores each), and `--limit-s`
ends them in time: within five minutes and the time of settling on a machine with 16 cores

    python -m ops.bench leak-watch --servers 5 --requests 1000000 --restarts 1000 --limit-s 300 --server-arg=--vault
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

import click
from rich import box
from rich.markup import escape
from rich.table import Table

from ops.bench.leaks.held_resources import Allowance
from ops.bench.leaks.part import WatchPart, watch_part
from ops.bench.leaks.watch import Watched, WatchPlan
from ops.bench.machine import describe_machine
from ops.bench.own_server import free_ports
from ops.bench.side_by_side import FailedPart, side_by_side
from supervisor.bench.serve_load import CONSOLE, write_json


@click.command(context_settings={"show_default": True})
@click.option("--requests", "n_requests", default=100_000)
@click.option("--restarts", "n_restarts", default=100, help="Of all actors together.")
@click.option("--warm", "warm_requests", default=10_000, help="Requests before the first measurement.")
@click.option("--at-once", default=16, help="Requests of all clients of one server.")
@click.option("--clients", "n_clients", default=2, help="Processes of clients of one server.")
@click.option("--allowed-mb", default=24, help="By how much the memory of one process may grow.")
@click.option("--allowed-kb-per-1000", default=64, help="The same for each 1,000 requests; judged from 500,000 on.")
@click.option("--settle-s", default=60.0, help="Time in which whatever is kept for a while must be gone.")
@click.option("--servers", "n_servers", default=1, help="Servers side by side that share requests and restarts.")
@click.option("--limit-s", default=math.inf, help="Requests of a server end after 60 % of this time, and deaths after it.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    n_requests: int, n_restarts: int, warm_requests: int, at_once: int, n_clients: int, allowed_mb: int,
    allowed_kb_per_1000: int, settle_s: float, n_servers: int, limit_s: float, server_args: tuple[str, ...], seed: int,
    out: str | None,
) -> None:  # fmt: skip
    """Watch hash-chain servers for leaks. Exit status 1 when something has grown, or an answer was wrong."""
    allowed = Allowance(memory_bytes=allowed_mb << 20, descriptors=8, sockets=6, threads=2, shared=2)
    plan = WatchPlan(
        n_requests, n_restarts, at_once, warm_requests, allowed, seed, limit_s, n_clients, settle_s, allowed_kb_per_1000 << 10
    )
    results = side_by_side(watch_part, WatchPart(plan, server_args, 0).split(free_ports(n_servers)))
    failures = [f"server {one.part}: {one.error}" for one in results if isinstance(one, FailedPart)]
    watched = [one for one in results if isinstance(one, Watched)]
    if not watched:
        raise click.ClickException(failures[0])
    for one in watched:
        _show(one)
    for failure in failures:
        CONSOLE.print(f"[red]{escape(failure)}[/red]", highlight=False)
    write_json({
        "bench": "leak-watch", "machine": describe_machine(), "server_args": server_args, "failures": failures,
        "requests": sum(one.n_requests for one in watched), "kinds": _sum(one.kinds for one in watched),
        "cut_by_deaths": _sum(one.cut_by_deaths for one in watched), "restarts": _sum(one.restarts for one in watched),
        "growths": [asdict(growth) for one in watched for growth in one.growths],
        "requests_per_s": sum(one.requests_per_s for one in watched), "servers": [asdict(one) for one in watched],
    }, out)  # fmt: skip
    raise SystemExit(1 if failures or any(one.growths for one in watched) else 0)


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    together = Counter[str]()
    for one in counts:
        together.update(one)
    return dict(together)


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} > {after}"


def _show(seen: Watched) -> None:
    title = "before and after the requests (RSS and USS in MiB)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 0))
    for column in ("process", "MiB", "KiB/1,000", "RSS", "USS", "files", "sockets", "threads", "shared"):
        is_name = column == "process"
        table.add_column(column, justify="left" if is_name else "right", no_wrap=is_name)
    for name, (old, new) in seen.held.items():
        sizes = [(a >> 20, b >> 20) for a, b in ((old.rss_bytes, new.rss_bytes), (old.uss_bytes, new.uss_bytes))]
        counts = [(old.descriptors, new.descriptors), (old.sockets, new.sockets)]
        counts += [(old.threads, new.threads), (old.shared, new.shared)]
        per_1000 = f"{seen.bytes_per_1000.get(name, 0.0) / 1024:.1f}"
        memory = _change(old.memory_bytes >> 20, new.memory_bytes >> 20)
        table.add_row(name.partition(" (")[0], memory, per_1000, *(_change(a, b) for a, b in (*sizes, *counts)))
    CONSOLE.print(table)
    CONSOLE.print(
        f"{seen.n_requests} requests, {seen.requests_per_s:.0f} a second; restarts: {seen.restarts}; files: {seen.files}"
    )
    CONSOLE.print({phase: f"{n_bytes / 1e6:.1f} MB" for phase, n_bytes in seen.most_grown_bytes.items()})
    for growth in seen.growths:
        CONSOLE.print(f"[red]{growth.name}[/red]: {growth.what} {growth.before} > {growth.after}", highlight=False)
