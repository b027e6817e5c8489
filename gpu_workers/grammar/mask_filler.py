"""Masks of many matchers: one after the other in the calling thread while that is quick, else by several threads.

An ordinary mask takes a few µs, and to wake a thread takes as long or, in virtual machines, much longer. A grammar may also
have masks that take hundreds of µs; several of these in one step are worth the threads.
"""

from __future__ import annotations

import os
import time
from functools import cached_property

import numpy as np
from llguidance import LLExecutor, LLMatcher
from llguidance.numpy import (
    fill_next_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)

_ALONE_S = 0.001  # that the masks of a step may take in the calling thread
_MOST_THREADS = 4
_FORGETS = 0.98  # the share of what is known of the duration of a mask that is kept from step to step


class MaskFiller:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._mask_s = 0.0  # that a mask has taken lately

    def fill(self, matchers: list[tuple[LLMatcher, int]], masks: np.ndarray) -> None:
        """masks: [M, words] int32, written at the row that each matcher comes with: which tokens may follow."""
        if not self._are_quick(len(matchers)):
            fill_next_token_bitmask_par(self._executor, matchers, masks)
            return
        began_s = time.perf_counter()
        for matcher, row in matchers:
            fill_next_token_bitmask(matcher, masks, row)
        self._note(len(matchers), time.perf_counter() - began_s)

    def fill_drafted(self, matchers: list[tuple[LLMatcher, int, list[int]]], masks: np.ndarray) -> None:
        """The same with drafts that the matcher allows: the masks before each draft and after the last one, row after row."""
        n_masks = sum(1 + len(drafts) for _, _, drafts in matchers)
        if not self._are_quick(n_masks):
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, matchers, masks)
            return
        began_s = time.perf_counter()
        for matcher, row, drafts in matchers:
            for index, draft in enumerate(drafts):
                fill_next_token_bitmask(matcher, masks, row + index)
                matcher.consume_token(draft)
            fill_next_token_bitmask(matcher, masks, row + len(drafts))
            matcher.rollback(len(drafts))
        self._note(n_masks, time.perf_counter() - began_s)

    def _note(self, n_masks: int, took_s: float) -> None:
        self._mask_s = max(self._mask_s, took_s / n_masks)

    def _are_quick(self, n_masks: int) -> bool:
        """True if so many masks are quick in the calling thread. What is known fades, so that this is tried again."""
        self._mask_s *= _FORGETS
        return n_masks * self._mask_s <= _ALONE_S

    @cached_property
    def _executor(self) -> LLExecutor:
        return LLExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
