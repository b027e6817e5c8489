"""`cache`: traces played through the page ledger with each eviction policy, beside the rule of vLLM.

python -m ops.bench cache                                          generated traces, three sizes of the cache
python -m ops.bench cache --file recorded.jsonl --pages 20000      a trace that a scheduler has recorded
python -m ops.bench cache --svg hit_rates.svg --out cache.json     with a picture, and figures as JSON
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from actors.pages.eviction.choice import EvictionName, make_eviction
from ops.bench.cache.generated import GENERATORS, generate
from ops.bench.cache.plot import picture
from ops.bench.cache.policy_speed import operations_per_s
from ops.bench.cache.replay import LedgerCache, PageCache, Replayed, findable_rate, replay
from ops.bench.cache.trace_file import HashedRequest, hashed, read_trace
from ops.bench.cache.vllm_rule import VllmRule
from ops.bench.machine import describe_machine
from supervisor.bench.serve_load import CONSOLE, write_json

_VLLM = "vLLM's rule"
_NAMES = [name.value for name in EvictionName]


class _Row(msgspec.Struct, frozen=True):
    """One replay."""

    trace: str
    pages: int
    policy: str
    hit_rate: float
    pages_per_s: float


@click.command(context_settings={"show_default": True})
@click.option(
    "--trace",
    "traces",
    type=click.Choice(list(GENERATORS)),
    multiple=True,
    help="Generated. Default: all, or none with --file.",
)
@click.option(
    "--file", "files", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True, help="A recorded trace."
)
@click.option("--policy", "policies", type=click.Choice(_NAMES), multiple=True, help="Default: all of them.")
@click.option(
    "--pages", "sizes", type=click.IntRange(min=64), multiple=True, help="Pages of the cache. Default: 2048, 4096, 8192."
)
@click.option("--requests", type=click.IntRange(min=1), default=6000, help="Of each generated trace.")
@click.option("--seed", default=0)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture of the hit rates here.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    traces: tuple[str, ...], files: tuple[Path, ...], policies: tuple[str, ...], sizes: tuple[int, ...], requests: int,
    seed: int, svg: Path | None, out: str | None,
) -> None:  # fmt: skip
    """Hit rates and speed of eviction policies, on generated and recorded traces."""
    chosen = [EvictionName(name) for name in policies or _NAMES]
    sizes = tuple(sorted(set(sizes or (2048, 4096, 8192))))
    rows: list[_Row] = []
    try:
        for name, trace in _traces(traces or (() if files else tuple(GENERATORS)), files, requests, seed).items():
            rows += [row for n_pages in sizes for row in _replays(name, trace, n_pages, chosen)]
            _show(
                [row for row in rows if row.trace == name],
                f"{name}: {len(trace):,} requests, {findable_rate(trace):.1%} can be found",
            )
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    speeds = {name.value: round(operations_per_s(make_eviction(name, sizes[-1]), sizes[-1])) for name in chosen}
    CONSOLE.print("operations/s of the policies alone:", ", ".join(f"{name} {speed:,}" for name, speed in speeds.items()))
    if svg is not None:
        svg.write_text(picture(_curves(rows)))
    facts = {"bench": "cache", "machine": describe_machine(), "requests": requests, "seed": seed, "operations_per_s": speeds}
    write_json({**facts, "rows": msgspec.to_builtins(rows)}, out)


def _traces(names: tuple[str, ...], files: tuple[Path, ...], requests: int, seed: int) -> dict[str, list[HashedRequest]]:
    found = {name: hashed(generate(name, requests, seed)) for name in names}
    return found | {path.name: hashed(read_trace(path)) for path in files}


def _replays(name: str, trace: list[HashedRequest], n_pages: int, chosen: list[EvictionName]) -> list[_Row]:
    caches: dict[str, PageCache] = {_VLLM: VllmRule(n_pages)}
    caches |= {policy.value: LedgerCache(n_pages, make_eviction(policy, n_pages)) for policy in chosen}
    return [_row(name, n_pages, policy, replay(trace, cache)) for policy, cache in caches.items()]


def _row(name: str, n_pages: int, policy: str, result: Replayed) -> _Row:
    return _Row(name, n_pages, policy, round(result.hit_rate, 5), round(result.pages_per_s))


def _show(rows: list[_Row], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("pages", "policy", "found, %", "beside LRU, %", "pages/s"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    lru = {row.pages: row.hit_rate for row in rows if row.policy == EvictionName.LRU.value}
    for row in rows:
        gain = f"{100 * (row.hit_rate / lru[row.pages] - 1):+.1f}" if lru.get(row.pages) else ""
        table.add_row(f"{row.pages:,}", row.policy, f"{100 * row.hit_rate:.2f}", gain, f"{row.pages_per_s:,.0f}")
    CONSOLE.print(table)


def _curves(rows: list[_Row]) -> dict[str, dict[str, dict[int, float]]]:
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        curves.setdefault(row.trace, {}).setdefault(row.policy, {})[row.pages] = row.hit_rate
    return curves
