"""`served-balance`: how evenly the replicas of a real server share the work, by strategy, with the hash chain as its model.

python -m ops.bench served-balance [--load zipf] [--rate 10] [--replicas 3] [--gateways 2] [--minutes 4]

The load is that of `balance`, which does the same in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import get_args

import click

from actors.gateway.settings import BalancingName
from ops.bench.balance.run import BalanceLoad
from ops.bench.balance.served import serve_balance
from ops.bench.commands.balance import figures_of
from ops.bench.machine import describe_machine
from ops.bench.own_server import own_server
from supervisor.bench.serve_load import CONSOLE, write_json

_DEVICE = (
    "worker.hash_chain_step_s=0.008",
    "worker.max_step_tokens=1024",
    "worker.n_slots=32",
    "worker.hash_chain_pages=12000",
)
_LOADS = (BalanceLoad.UNIFORM.value, BalanceLoad.ZIPF.value)


@click.command(context_settings={"show_default": True})
@click.option("--load", "loads", type=click.Choice(_LOADS), multiple=True, default=_LOADS, help="May be repeated.")
@click.option("--balancing", "names", type=click.Choice(get_args(BalancingName)), multiple=True, default=("prefix",))
@click.option("--rate", default=10.0, help="Requests a second.")
@click.option("--replicas", default=3)
@click.option("--gateways", default=2)
@click.option("--minutes", default=4, help="The first one is not counted.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here, one line for each run.")
def command(
    loads: tuple[str, ...], names: tuple[str, ...], rate: float, replicas: int, gateways: int, minutes: int, seed: int,
    out: str | None,
) -> None:  # fmt: skip
    """Imbalance of computed tokens in any minute, first tokens and cached tokens, one server for each load and strategy."""
    flags = ["--model", "hash-chain", "--gpus", "0", "--no-standby", "--max-length", "4096"]
    flags += ["--replicas", str(replicas), "--gateways", str(gateways)]
    flags += [part for one in _DEVICE for part in ("--set", one)]
    for load in loads:
        for name in names:
            with own_server([*flags, "--set", f"gateway.balancing={name}"]) as server:
                found = asyncio.run(serve_balance(server.url, BalanceLoad(load), rate, minutes, seed))
            figures = figures_of(found) | {"answers": len(found.first_token_s), "errors": found.n_given_up}
            options = {"load": load, "balancing": name, "rate": rate, "replicas": replicas, "gateways": gateways}
            CONSOLE.print(options | figures)
            write_json({"bench": "served-balance", **options, **figures, "machine": describe_machine()}, out)
