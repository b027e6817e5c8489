"""`pages`: what pages are worth and what they cost: sequences that fit, and the time of the page ledger in a step.

python -m ops.bench pages                                            log-uniform lengths of 16 to 8,192 tokens
python -m ops.bench pages --least 128 --most 4096 --rows 256 --step-ms 10
"""

from __future__ import annotations

import click
from rich.table import Table

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
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="Of the ledger's time; the least one counts.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(n_pages: int, least: int, most: int, rows: int, step_ms: tuple[float, ...], repeats: int, out: str | None) -> None:
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
    times = [measure_ledger(n_pages, rows, least, most) for _ in range(repeats)]
    ledger_ms = min(one.mean_s for one in times) * 1000
    spread_ms = [round(one.mean_s * 1000, 4) for one in times]
    shares = {wanted: ledger_ms / wanted for wanted in step_ms or _STEPS_MS}
    CONSOLE.print(
        f"the page ledger takes {ledger_ms:.4f} ms of a processor in a step of {rows} rows, {spread_ms} in all repeats"
    )
    for wanted, share in shares.items():
        CONSOLE.print(f"  {share:.2%} of a step of {wanted:g} ms")
    figures = {"contiguous": capacity.contiguous, "paged": capacity.paged, "ratio": capacity.ratio}
    write_json({"machine": machine, "capacity": figures, "ledger_ms": spread_ms, "evictions": times[0].evictions}, out)
