"""Replays seeds of the simulation: `python -m tests.support.simulation FIRST [LAST]`. One seed alone also shows the log."""

from __future__ import annotations

import sys

from tests.support.simulation.world import simulate


def main(argv: list[str]) -> int:
    """Returns 1 if a seed shows a problem."""
    first = int(argv[0])
    last = int(argv[1]) if len(argv) > 1 else first
    n_bad = 0
    for seed in range(first, last + 1):
        outcome = simulate(seed)
        if outcome.problems or last == first:
            print(
                f"seed {seed}: {outcome.n_deaths} deaths, {outcome.virtual_s:.1f} s: {outcome.problems or 'all promises held'}"
            )
        n_bad += bool(outcome.problems)
        if last == first:
            for line in outcome.log:
                print("   ", line)
    print(f"{last - first + 1} seeds, {n_bad} with problems")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
