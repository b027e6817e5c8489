"""Two processes for the ranks of many tests: to import torch takes 3 s of a core in each, and they have done it once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from supervisor.parent.kernel import die_with


class TwoRanks:
    """They wait for what a test wants of them, and end with the test process."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), die_with, (os.getpid(),))

    def start(self, function: Callable[..., Any], *arguments: object) -> list[Future[Any]]:
        """Call a function of a module in both, with the rank before these arguments. Its ranks have to wait for each other, so
        that no process takes both calls; what it sets for its process, it takes back."""
        return [self._pool.submit(function, rank, *arguments) for rank in range(2)]

    def close(self) -> None:
        """End both, once they have done everything."""
        self._pool.shutdown()
