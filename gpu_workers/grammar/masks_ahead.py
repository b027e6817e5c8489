"""Masks of slow grammars, computed in a thread between the steps that sample by them, so that no step waits for them.

The scheduler is told how long that takes, and leaves the answer out of its plans for so long. A step that comes early waits.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from gpu_workers.grammar.compiled_grammars import give_way

SLOW_S = 0.003  # of a processor for one mask; those of JSON take up to half of it with 128,000 tokens
_DECAY = 0.8  # of what is known of slow masks, with each quicker one
_SPARE = 1.5  # the threads give way to others
_MOST_THREADS = 12


def n_mask_threads() -> int:
    """Threads that compute masks: most of the processors that this process may use, so that some are left for its other
    threads; two of two."""
    n_processors = len(os.sched_getaffinity(0))
    return min(_MOST_THREADS, max(n_processors * 3 // 4, min(n_processors, 2)))


@dataclass(frozen=True)
class MasksAhead:
    """The masks before each draft and after the last one."""

    drafts: list[int]
    masks: np.ndarray  # [len(drafts) + 1, words] int32
    took_s: float  # of a processor

    def of(self, drafts: list[int]) -> np.ndarray | None:
        """The masks of a row with these drafts; None if others were computed."""
        return self.masks[: len(drafts) + 1] if self.drafts[: len(drafts)] == drafts else None


def compute_ahead(matcher: LLMatcher, drafts: list[int], n_columns: int) -> MasksAhead:
    """The next masks of a matcher, which is as before afterwards. drafts: allowed by it."""
    masks = allocate_token_bitmask(len(drafts) + 1, n_columns)
    return MasksAhead(drafts, masks, fill_alone(matcher, 0, drafts, masks))


def fill_alone(matcher: LLMatcher, row: int, drafts: list[int], masks: np.ndarray) -> float:
    """Write the masks before each draft and after the last one to masks [M, words] int32, from `row` on. Where the matcher
    fails, the end alone is allowed from there on. Returns how long it has taken, in seconds of a processor."""
    began_s = time.thread_time()
    for index, draft in enumerate(drafts):
        fill_next_token_bitmask(matcher, masks, row + index)
        matcher.consume_token(draft)
    fill_next_token_bitmask(matcher, masks, row + len(drafts))
    if drafts:
        matcher.rollback(len(drafts))
    return time.thread_time() - began_s


class MaskThreads:
    """Threads that compute masks ahead. Used by any thread."""

    def __init__(self) -> None:
        self._n_threads = n_mask_threads()
        self._executor = ThreadPoolExecutor(self._n_threads, "masks", initializer=give_way)
        self._lock, self._due_s = threading.Lock(), 0.0  # expected for all masks that are not done

    def begin(
        self, matcher: LLMatcher, drafts: list[int], n_columns: int, expected_s: float
    ) -> tuple[Future[MasksAhead], float]:
        """Begin `compute_ahead`, expected to take so long. Returns it and how long to wait for it and those before it."""
        with self._lock:
            self._due_s += expected_s
            wait_s = _SPARE * max(expected_s, self._due_s / self._n_threads)
        begun = self._executor.submit(compute_ahead, matcher, drafts, n_columns)
        begun.add_done_callback(lambda _: self._done(expected_s))
        return begun, wait_s

    def _done(self, expected_s: float) -> None:
        with self._lock:
            self._due_s -= expected_s


class MaskTimes:
    """How long the masks of one answer take, in seconds of a processor."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._mask_s = 0.0  # of one, at the slowest lately

    def add(self, took_s: float, n_masks: int) -> None:
        """So many masks have taken so long together."""
        self.total_s += took_s
        self._mask_s = max(took_s / n_masks, _DECAY * self._mask_s)

    @property
    def is_slow(self) -> bool:
        """True if its next masks should be computed ahead."""
        return self._mask_s >= SLOW_S

    def expected_s(self, n_masks: int) -> float:
        """How long the next masks will take."""
        return self._mask_s * n_masks
