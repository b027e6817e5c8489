"""`balance`: how evenly replicas share the work, by strategy, in virtual time.

python -m ops.bench balance [--load zipf] [--rate 30] [--replicas 3] [--gateways 2] [--minutes 5]
"""

from __future__ import annotations

import logging
from typing import get_args

import click
import structlog
from rich.table import Table

from actors.gateway.settings import BalancingName
from ops.bench.balance.gateway_model import FEWEST_SEQUENCES
from ops.bench.balance.run import BalanceCase, BalanceLoad, BalanceResult, run
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import percentile

_CHOICES = (FEWEST_SEQUENCES, *get_args(BalancingName))


@click.command(context_settings={"show_default": True})
@click.option("--load", "loads", type=click.Choice([load.value for load in BalanceLoad]), multiple=True, help="Default: all.")
@click.option("--balancing", "names", type=click.Choice(_CHOICES), multiple=True, help="Default: all.")
@click.option("--rate", "rates", type=float, multiple=True, default=(10.0, 25.0), help="Requests a second.")
@click.option("--replicas", "n_replicas", default=3)
@click.option("--gateways", "n_gateways", default=2)
@click.option("--minutes", "n_minutes", default=5, help="The first one is not counted.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here, one line for each run.")
def command(
    loads: tuple[str, ...], names: tuple[str, ...], rates: tuple[float, ...],
    n_replicas: int, n_gateways: int, n_minutes: int, seed: int, out: str | None,
) -> None:  # fmt: skip
    """Imbalance of computed tokens in any minute, first tokens and cached tokens of each strategy, beside the choice by the
    number of own sequences. Real dispatchers of gateways; replicas and time are formulas."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    table = Table("load", "requests/s", "balancing", "worst minute", "mean", "TTFT p50", "p99", "cached", "moved", "openings")
    for load in loads or tuple(BalanceLoad):
        for rate in rates:
            for name in names or _CHOICES:
                case = BalanceCase(name, BalanceLoad(load), rate, n_replicas, n_gateways, n_minutes, seed)
                figures = figures_of(run(case))
                table.add_row(load, f"{rate:g}", name, *_cells(figures))
                write_json({"bench": "balance", "load": load, "rate": rate, "balancing": name, **figures}, out)
    CONSOLE.print(table)


def figures_of(result: BalanceResult) -> dict[str, float]:
    """The figures of one run. Shares are parts of 1."""
    ordered = sorted(result.first_token_s)
    return {
        "worst_imbalance": max(result.imbalances),
        "mean_imbalance": sum(result.imbalances) / len(result.imbalances),
        "ttft_p50_ms": percentile(ordered, 0.5) * 1e3,
        "ttft_p99_ms": percentile(ordered, 0.99) * 1e3,
        "cached_share": result.cached_share,
        "moved": result.n_moved,
        "openings": result.n_openings,
    }


def _cells(figures: dict[str, float]) -> list[str]:
    shares = [f"{figures[name]:.1%}" for name in ("worst_imbalance", "mean_imbalance")]
    times = [f"{figures[name]:,.0f} ms" for name in ("ttft_p50_ms", "ttft_p99_ms")]
    return [*shares, *times, f"{figures['cached_share']:.1%}", f"{figures['moved']:g}", f"{figures['openings']:g}"]
