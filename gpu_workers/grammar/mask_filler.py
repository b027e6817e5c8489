"""Masks of many matchers: one after the other in the calling thread, or by several threads, whichever has been faster lately.

An ordinary mask takes some µs, and to wake a thread takes as long or, in virtual machines, much longer. A grammar may also have
masks that take hundreds of µs. In the calling thread, every mask lets other threads have the interpreter, which may take long
to come back. So both ways are measured; a few quick masks are made in the calling thread without a comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np
from llguidance import LLExecutor, LLMatcher
from llguidance.numpy import (
    fill_next_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)

from gpu_workers.grammar.masks_ahead import fill_alone, n_mask_threads

_ALONE_S = 0.001  # that the masks of a step may take in the calling thread without a comparison
_COMPARES = 50  # every so many steps the slower way is tried again
_NEWEST = 0.2  # share of the newest measurement in what is known


class MaskFiller:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._alone_s = self._together_s = 0.0  # that a mask has taken lately; 0: not measured
        self._until_comparison = _COMPARES

    def fill(self, matchers: list[tuple[LLMatcher, int, list[int]]], masks: np.ndarray) -> list[float]:
        """Which tokens may follow. Each matcher comes with the row of its first mask and drafts that it allows.

        masks: [M, words] int32; written are the masks before each draft and after the last one, row after row. Where a matcher
        fails, it allows the end alone from there on. Returns how long each has taken, in seconds of a processor; nothing if
        several threads have made them."""
        took_s: list[float] = []

        def alone() -> None:
            took_s.extend(fill_alone(matcher, row, drafts, masks) for matcher, row, drafts in matchers)

        self._measure(sum(1 + len(drafts) for _, _, drafts in matchers), alone, lambda: self._fill_together(matchers, masks))
        return took_s

    def _fill_together(self, matchers: list[tuple[LLMatcher, int, list[int]]], masks: np.ndarray) -> None:
        for _, row, drafts in matchers:
            masks[row : row + len(drafts) + 1] = 0
        if drafted := [(matcher, row, drafts) for matcher, row, drafts in matchers if drafts]:
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, drafted, masks)
        if single := [(matcher, row) for matcher, row, drafts in matchers if not drafts]:
            fill_next_token_bitmask_par(self._executor, single, masks)
        for matcher, row, drafts in matchers:
            if matcher.is_error():  # the library has written nothing from there on
                for unwritten in row + np.flatnonzero(~masks[row : row + len(drafts) + 1].any(axis=1)):
                    fill_next_token_bitmask(matcher, masks, int(unwritten))

    def _measure(self, n_masks: int, alone: Callable[[], None], together: Callable[[], None]) -> None:
        is_together = self._chooses_threads(n_masks)
        began_s = time.perf_counter()
        (together if is_together else alone)()
        mask_s = (time.perf_counter() - began_s) / n_masks
        if is_together:
            self._together_s = _mean(self._together_s, mask_s)
        else:
            self._alone_s = _mean(self._alone_s, mask_s)

    def _chooses_threads(self, n_masks: int) -> bool:
        if n_masks == 1 or n_masks * self._alone_s <= _ALONE_S:
            return False
        are_faster = self._together_s < self._alone_s
        self._until_comparison -= 1
        if self._until_comparison > 0:
            return are_faster
        self._until_comparison = _COMPARES
        return not are_faster

    @cached_property
    def _executor(self) -> LLExecutor:
        return LLExecutor(n_mask_threads())


def _mean(known_s: float, newest_s: float) -> float:
    return known_s + _NEWEST * (newest_s - known_s) if known_s else newest_s
