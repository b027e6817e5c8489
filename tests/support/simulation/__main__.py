"""Replays seeds of the simulation: `python -m tests.support.simulation FIRST [LAST] [--table]`.

One seed alone also shows the log. `--table` counts which faults have hit which edges, and names the pairs that none has hit.
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.support.simulation.edges import PAIRS, Count
from tests.support.simulation.scenario import Outcome
from tests.support.simulation.world import simulate


def main(argv: list[str]) -> int:
    """Returns 1 if a seed shows a problem."""
    numbers = [int(argument) for argument in argv if not argument.startswith("-")]
    first, last = numbers[0], numbers[-1]
    hit: Count = Counter()
    n_bad = n_adopted = 0
    for seed in range(first, last + 1):
        outcome = simulate(seed)
        n_bad += bool(outcome.problems)
        hit += outcome.hit
        n_adopted += outcome.n_adopted
        if outcome.problems or last == first:
            _show(outcome, with_log=last == first)
    if "--table" in argv:
        _show_table(hit)
    n_hit = sum(pair in hit for pair in PAIRS)
    print(
        f"{last - first + 1} seeds, {n_bad} with problems; {n_hit} of {len(PAIRS)} pairs hit, {n_adopted} adopted pages checked"
    )
    return 1 if n_bad else 0


def _show(outcome: Outcome, with_log: bool) -> None:
    found = outcome.problems or "all promises held"
    print(f"seed {outcome.seed}: {outcome.n_deaths} deaths, {outcome.virtual_s:.1f} s: {found}", flush=True)
    if with_log:
        print(f"    digest {outcome.digest}")
        for line in outcome.log:
            print("   ", line)


def _show_table(hit: Count) -> None:
    for edge in dict.fromkeys(edge for edge, _ in PAIRS):
        counts = [f"{fault.value} {hit[edge, fault] or 'NEVER'}" for known, fault in PAIRS if known == edge]
        print(f"{edge:40} {', '.join(counts)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
