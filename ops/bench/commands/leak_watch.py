"""`leak-watch`: a server of our own, many requests of all kinds, many kills of each actor, and nothing that lives on grows."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from ops.bench.leaks.holdings import Allowance
from ops.bench.leaks.watch import DidNotComeBack, LeakWatch, Watched, WatchPlan
from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from ops.bench.serve_load import CONSOLE, write_json

_FLAGS = (
    "--log-level", "warning", "--set", "supervisor.actor_restarts=1000000", "--set", "supervisor.gang_restarts=1000000",
    "--set", "gateway.retention_s=1", "--set", "gateway.orphan_s=1",
)  # fmt: skip


@click.command(context_settings={"show_default": True})
@click.option("--requests", "n_requests", default=100_000)
@click.option("--restarts", "n_restarts", default=100, help="Of all actors together.")
@click.option("--warm", "warm_requests", default=10_000, help="Requests before the first measurement.")
@click.option("--at-once", default=16)
@click.option("--allowed-mb", default=24, help="By how much the memory of one process may grow.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    n_requests: int, n_restarts: int, warm_requests: int, at_once: int, allowed_mb: int, server_args: tuple[str, ...],
    seed: int, out: str | None,
) -> None:  # fmt: skip
    """Watch a hash-chain server for leaks. Exit status 1 when something has grown, or an answer was wrong."""
    allowed = Allowance(memory_bytes=allowed_mb << 20, descriptors=8, sockets=6, threads=2, shared=2)
    plan = WatchPlan(n_requests, n_restarts, at_once, warm_requests, allowed, seed)
    with tempfile.TemporaryDirectory(prefix="tardigrade-leaks-") as folder:
        state, temporary = Path(folder) / "state", Path(folder) / "tmp"
        temporary.mkdir()
        flags = ["--model", "hash-chain", "--gpus", "0", "--state-dir", str(state), *_FLAGS, *server_args]
        try:
            with own_server(flags, environment={"TMPDIR": str(temporary)}) as server:
                watch = LeakWatch(server, plan, (state, temporary, server.run_dir))
                seen = asyncio.run(watch.run())
        except (ServerDidNotStart, DidNotComeBack) as error:
            raise click.ClickException(str(error)) from None
    assert watch.mix is not None
    result = {
        "bench": "leak-watch", "machine": describe_machine(), "requests": watch.mix.n_done, "kinds": dict(watch.mix.done),
        "cut_by_deaths": dict(watch.mix.failures), "server_args": server_args, **asdict(seen),
    }  # fmt: skip
    _show(seen, watch.mix.n_done)
    write_json(result, out)
    raise SystemExit(1 if seen.growths else 0)


def _show(seen: Watched, n_done: int) -> None:
    table = Table(title="before and after the requests", title_justify="left")
    for column in ("process", "MiB", "descriptors", "sockets", "threads", "shared"):
        table.add_column(column, justify="left" if column == "process" else "right")
    for name, (old, new) in seen.held.items():
        pairs = [(old.memory_bytes >> 20, new.memory_bytes >> 20), (old.descriptors, new.descriptors)]
        pairs += [(old.sockets, new.sockets), (old.threads, new.threads), (old.shared, new.shared)]
        table.add_row(name, *(f"{a} > {b}" for a, b in pairs))
    CONSOLE.print(table)
    CONSOLE.print(f"{n_done} requests, {seen.requests_per_s:.0f} a second; restarts: {seen.restarts}; files: {seen.files}")
    CONSOLE.print({phase: f"{n_bytes / 1e6:.1f} MB" for phase, n_bytes in seen.most_grown_bytes.items()})
    for growth in seen.growths:
        CONSOLE.print(f"[red]{growth.name}[/red]: {growth.what} {growth.before} > {growth.after}", highlight=False)
