"""Runs seeds of the simulation: `python -m tests.support.simulation FIRST [LAST] [--jobs N] [--limit-s S] [--table]`.

One line for each seed that shows a problem, and a summary. One seed alone also shows its log: that replays a seed of any run.
`--jobs`: that many processes. `--limit-s`: begin no more seeds after so many seconds. `--table`: how often each edge was
reached, which faults have hit it, and the pairs that none has hit.

    python -m tests.support.simulation 10000 39999 --jobs 16 --limit-s 500
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from contextlib import suppress

from tests.support.simulation.edges import PAIRS, Count
from tests.support.simulation.seeds import coverage
from tests.support.simulation.seeds.many_seeds import Shown, run_seeds
from tests.support.simulation.world import simulate

_PROGRESS_S = 30.0


def main(argv: list[str]) -> int:
    """Returns 1 if a seed shows a problem."""
    options = _parse(argv)
    if options.last == options.first and not options.table:
        return _replay(options.first)
    seeds = range(options.first, options.last + 1)
    hit: Count = Counter()
    reached: Counter[str] = Counter()
    bad: list[int] = []
    n_seeds = n_deaths = n_adopted = n_kept = 0
    said_s = began_s = time.monotonic()
    with suppress(KeyboardInterrupt):  # what was shown until then is summed up
        for shown in run_seeds(seeds, options.jobs, options.limit_s):
            n_seeds, n_deaths = n_seeds + 1, n_deaths + shown.n_deaths
            n_adopted, n_kept = n_adopted + shown.n_adopted, n_kept + shown.n_kept
            hit.update(shown.hit)
            reached.update(shown.reached)
            if shown.problems:
                bad.append(shown.seed)
                _show(shown)
            if time.monotonic() - said_s > _PROGRESS_S:
                said_s = time.monotonic()
                print(f"... {n_seeds} of {len(seeds)} seeds, {len(bad)} with problems", file=sys.stderr, flush=True)
    if options.table:
        coverage.show(hit, reached)
    wall_s = time.monotonic() - began_s
    n_hit = sum(pair in hit for pair in PAIRS)
    print(
        f"{n_seeds} of {len(seeds)} seeds in {wall_s:.0f} s ({n_seeds / wall_s:.1f} a second), {len(bad)} with problems"
        f"{': ' + ' '.join(map(str, sorted(bad))) if bad else ''}; {n_deaths} deaths, {n_hit} of {len(PAIRS)} pairs hit, "
        f"{n_adopted} adopted pages and {n_kept} positions of kept tails checked"
    )
    return 1 if bad else 0


def _parse(argv: list[str]) -> Namespace:
    parser = ArgumentParser("python -m tests.support.simulation", description="Run seeds of the simulation.")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no more seeds after so many seconds")
    parser.add_argument("--table", action="store_true", help="show which faults have hit which edges")
    options = parser.parse_args(argv)
    options.last = options.first if options.last is None else options.last
    return options


def _replay(seed: int) -> int:
    """One seed with its log."""
    outcome = simulate(seed)
    _show(Shown(seed, outcome.problems, outcome.n_deaths, virtual_s=outcome.virtual_s))
    print(f"    digest {outcome.digest}")
    for line in outcome.log:
        print("   ", line)
    return 1 if outcome.problems else 0


def _show(shown: Shown) -> None:
    found = list(shown.problems) or "all promises held"
    print(f"seed {shown.seed}: {shown.n_deaths} deaths, {shown.virtual_s:.1f} s: {found}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
