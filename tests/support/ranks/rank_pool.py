"""Processes for the ranks of many tests: to import torch takes 3 s of a core in each, and they do it once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from supervisor.parent.kernel import die_with

_MOST_RANKS = 4


class RankPool:
    """They are started when they are needed, wait for what a test wants of them, and end with the test process."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(_MOST_RANKS, spawn, die_with, (os.getpid(),))

    def start(self, n_ranks: int, function: Callable[..., Any], *arguments: object) -> list[Future[Any]]:
        """Call a function of a module in so many processes, with the rank before these arguments. The ranks have to wait for
        each other, so that no process takes two calls; what a rank sets for its process, it takes back."""
        return [self._pool.submit(function, rank, *arguments) for rank in range(n_ranks)]

    def close(self) -> None:
        """End all, once they have done everything."""
        self._pool.shutdown()
