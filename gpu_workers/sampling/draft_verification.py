"""The accept rule for drafts: a draft is right when it equals the token that is sampled in its place.

A row with k drafts computes k + 1 tokens in one pass and samples after each: s_0 after the last known token, s_i after draft
i. The noise of a sample belongs to its position alone, so s_i is the very token that k + 1 single steps would have sampled
there, provided that the tokens before it were right. Hence the rule: accept while draft_i = s_(i-1), emit the accepted ones
and one more. Greedy and sampled output are unchanged token for token; in distribution this is speculative sampling
(Leviathan et al. 2023, Chen et al. 2023) with drafts that are certain of themselves.

All samples of a row may be written to the slot's known tokens: those behind the first miss stand at positions that nobody
reads before they are written again.
"""

from __future__ import annotations

import numpy as np


def accept_drafts(samples: np.ndarray, widths: np.ndarray, draft_ids: np.ndarray) -> np.ndarray:
    """How many samples each row emits: the drafts that equal the sample before them, up to the first that does not, and one.

    samples: [S] int, row by row; widths: [N] samples of each row; draft_ids: [S - N], row by row. Returns [N] int64.
    """
    if len(samples) == len(widths):
        return np.ones(len(widths), np.int64)
    first = np.cumsum(widths) - widths
    is_last = np.zeros(len(samples), bool)
    is_last[first + widths - 1] = True
    is_hit = np.zeros(len(samples), bool)
    is_hit[~is_last] = samples[~is_last] == draft_ids
    misses = np.flatnonzero(~is_hit)  # the last sample of a row always is one, so each row finds its own
    return misses[np.searchsorted(misses, first)] - first + 1


def take_emitted(widths: np.ndarray, emitted: np.ndarray) -> np.ndarray:
    """Index [sum(emitted)] into the samples of those that are emitted, row by row."""
    first = np.cumsum(widths) - widths
    index = np.repeat(first - (np.cumsum(emitted) - emitted), emitted)
    return index + np.arange(len(index))
