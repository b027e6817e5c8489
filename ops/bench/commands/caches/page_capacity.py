"""`pages`: what pages are worth and what they cost: sequences that fit, and the time of the page ledger in a step.

python -m ops.bench pages                                            log-uniform lengths of 16 to 8,192 tokens
python -m ops.bench pages --least 128 --most 4096 --rows 256 --step-ms 10
"""

from __future__ import annotations

import click
from rich.table import Table

from actors.pages.eviction.choice import EvictionName
from messages.steps import PAGE_TOKENS
from ops.bench.cache.page_capacity import measure_capacity, measure_ledger
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import CONSOLE, write_json

_STEPS_MS = (1.08, 5.6, 61.0)  # of 64 rows, docs/performance_gpus.md: SmolLM2 and 8B on an H200, SmolLM2 on two cores


@click.command(context_settings={"show_default": True})
@click.option("--pages", "n_pages", type=click.IntRange(min=1), default=65_536, help="Of 16 tokens each.")
@click.option("--least", type=click.IntRange(min=1), default=16, help="Tokens of the shortest sequence.")
@click.option("--most", type=click.IntRange(min=1), default=8192, help="Tokens of the longest sequence, and of a slot.")
@click.option("--rows", type=click.IntRange(min=1), default=64, help="Sequences that decode together.")
@click.option("--step-ms", type=float, multiple=True, help="Steps to compare with. Default: 1.08, 5.6, 61.")
@click.option(
    "--policy", "policies", type=click.Choice([name.value for name in EvictionName]), multiple=True,
    default=("lru", "w-tinylfu", "adaptive"), help="Eviction policies whose ledgers are timed; may be repeated.",
)  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="Of the ledger's time; the least one counts.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    n_pages: int, least: int, most: int, rows: int, step_ms: tuple[float, ...], policies: tuple[str, ...], repeats: int,
    out: str | None,
) -> None:  # fmt: skip
    """Capacity of pages beside contiguous slots, and the share of the page ledger in a step."""
    if rows * -(-most // PAGE_TOKENS) > n_pages:
        raise click.UsageError(f"--pages: expected at least {rows * -(-most // PAGE_TOKENS)} for {rows} rows of {most} tokens")
    machine = describe_machine()
    capacity = measure_capacity(n_pages, least, most)
    table = Table("sequences at once", "contiguous", "pages", "ratio", "tokens used", title=f"{least} to {most} tokens each")
    table.add_row(
        "", f"{capacity.contiguous:.0f}", f"{capacity.paged:.0f}", f"{capacity.ratio:.2f}", f"{capacity.used_share:.1%}"
    )
    CONSOLE.print(table)
    names = [EvictionName(name) for name in policies]
    times = {name: [measure_ledger(n_pages, rows, least, most, policy=name) for _ in range(repeats)] for name in names}
    spreads_ms = {name.value: [round(one.mean_s * 1000, 4) for one in ones] for name, ones in times.items()}
    _show_ledger(spreads_ms, rows, step_ms or _STEPS_MS)
    evictions = {name.value: ones[0].evictions for name, ones in times.items()}
    figures = {"contiguous": capacity.contiguous, "paged": capacity.paged, "ratio": capacity.ratio}
    write_json({"machine": machine, "capacity": figures, "ledger_ms": spreads_ms, "evictions": evictions}, out)


def _show_ledger(spreads_ms: dict[str, list[float]], rows: int, steps_ms: tuple[float, ...]) -> None:
    """One row for each policy: the least time of the ledger in a step, all repeats, and its share of steps."""
    shares = [f"of {wanted:g} ms" for wanted in steps_ms]
    table = Table("policy", "ms in a step", "all repeats", *shares, title=f"processor time of the page ledger, {rows} rows")
    for name, spread_ms in spreads_ms.items():
        least_ms = min(spread_ms)
        table.add_row(name, f"{least_ms:.4f}", str(spread_ms), *(f"{least_ms / wanted:.2%}" for wanted in steps_ms))
    CONSOLE.print(table)
