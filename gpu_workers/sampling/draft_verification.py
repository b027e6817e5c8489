"""Acceptance of drafts: a draft is accepted if it equals the token that is sampled in its place.

A row with k drafts computes k + 1 tokens in one pass and samples after each: s_0 after the last known token, s_i after draft
i. The noise of a sample depends on its position alone, so s_i is the token that single steps would have sampled there, if the
tokens before it are right. So drafts are accepted while draft_i = s_(i-1); the accepted ones and one more sample are emitted.
Greedy and sampled output are the same, token for token, as without drafts. In distribution this is speculative sampling
(Leviathan et al. 2023, Chen et al. 2023) with a draft model that gives its tokens probability 1.

All samples of a row may be written to the slot's tokens: those after the first rejected draft stand at positions that are
written again before they are read.
"""

from __future__ import annotations

import numpy as np


def accept_drafts(samples: np.ndarray, widths: np.ndarray, draft_ids: np.ndarray) -> np.ndarray:
    """How many samples each row emits: its accepted drafts and one more. Returns [N] int64. All arrays are on the host.

    samples: [S] int, row by row; widths: [N] int, samples of each row; draft_ids: [S - N] int, row by row.
    """
    if len(samples) == len(widths):
        return np.ones(len(widths), np.int64)
    first = np.cumsum(widths) - widths
    is_last = np.zeros(len(samples), bool)
    is_last[first + widths - 1] = True
    is_hit = np.zeros(len(samples), bool)
    is_hit[~is_last] = samples[~is_last] == draft_ids
    misses = np.flatnonzero(~is_hit)  # the last sample of a row always counts as a miss, so each row has one
    return misses[np.searchsorted(misses, first)] - first + 1


def emitted_indices(widths: np.ndarray, emitted: np.ndarray) -> np.ndarray:
    """Indices of the emitted samples among all samples, row by row: [sum(emitted)] int64.

    widths: [N] int, samples of each row; emitted: [N] int, how many of them are emitted."""
    first = np.cumsum(widths) - widths
    index = np.repeat(first - (np.cumsum(emitted) - emitted), emitted)
    return index + np.arange(len(index))
