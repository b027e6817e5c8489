"""Many seeds, in several processes. What each seed has shown comes back as soon as its block has ended, in any order."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from types import FrameType

from tests.support.simulation.edges import Count
from tests.support.simulation.world import simulate

_BLOCK = 10  # seeds that a process runs before it reports
_BLOCKS_PER_PROCESS = 100  # then another process takes its place, so that memory stays bounded
_SEED_S = 120.0  # processor time; a seed takes a fraction of a second


class DoesNotEnd(KeyboardInterrupt):
    """A seed takes far too long. An event loop passes on nothing but interrupts."""


@dataclass(frozen=True)
class Shown:
    """What one seed has shown: `simulate`'s outcome without its log."""

    seed: int
    problems: Sequence[str]
    n_deaths: int = 0
    n_adopted: int = 0  # pages
    n_kept: int = 0  # positions in partly filled pages
    virtual_s: float = 0.0
    digest: str = ""
    hit: Count = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)


def show_seed(seed: int) -> Shown:
    """Run one seed. An exception that leaves the simulation, or a run without an end, is a problem like any other."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SEED_S)
    try:
        outcome = simulate(seed)
    except (Exception, DoesNotEnd) as error:
        return Shown(seed, [f"the simulation itself failed: {error!r}"])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    one = outcome
    pages = one.n_adopted, one.n_kept
    return Shown(seed, one.problems, one.n_deaths, *pages, one.virtual_s, one.digest, one.hit, one.reached)


def run_seeds(seeds: range, n_jobs: int, limit_s: float = float("inf")) -> Iterator[Shown]:
    """Run all these seeds in `n_jobs` processes; with one job in this one. After `limit_s` no new block begins."""
    end_s = time.monotonic() + limit_s
    blocks = iter([seeds[at : at + _BLOCK] for at in range(0, len(seeds), _BLOCK)])
    if n_jobs == 1:
        for block in blocks:
            if time.monotonic() >= end_s:
                return
            for seed in block:
                yield show_seed(seed)
        return
    with ProcessPoolExecutor(n_jobs, get_context("spawn"), _begin, max_tasks_per_child=_BLOCKS_PER_PROCESS) as pool:
        running: set[Future[list[Shown]]] = set()
        while True:
            while len(running) < 2 * n_jobs and time.monotonic() < end_s and (block := next(blocks, None)) is not None:
                running.add(pool.submit(_run_block, block))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield from one.result()


def _begin() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


def _run_block(block: range) -> list[Shown]:
    shown = [show_seed(seed) for seed in block]
    gc.collect()
    return shown


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise DoesNotEnd(f"after {_SEED_S:g} s of processor time")
