"""Several servers of ours side by side: each part of a measurement runs in a process of its own and starts its own server."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True)
class FailedPart:
    """A part that came to no result."""

    part: int  # its place among the parts, from 0
    error: str


def side_by_side(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result | FailedPart]:
    """The result of each part, in their order. One part alone runs in this process. An error in one part leaves the others
    alone. `work` must be a function of a module, and parts and results can be pickled."""
    if len(parts) == 1:
        return [_result(0, lambda: work(parts[0]))]
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn"), _begin) as pool:
        running: list[Future[Result]] = [pool.submit(work, part) for part in parts]
        try:
            return [_result(number, one.result) for number, one in enumerate(running)]
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()  # each ends its own server in order
            raise


def _result(number: int, take: Callable[[], Result]) -> Result | FailedPart:
    try:
        return take()
    except Exception as error:
        return FailedPart(number, f"{type(error).__name__}: {error}")


def _begin() -> None:
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
