"""Samples of a step with a mask each: the tokens that a grammar allows there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MaskedSamples:
    """M samples of a step; the samples of one slot are adjacent. All arrays are on the host."""

    index: np.ndarray  # [M] int64: among all samples of the step
    slots: np.ndarray  # [M] int64
    positions: np.ndarray  # [M] int64: of the tokens to be sampled
    drafts: np.ndarray  # [M] int64: the draft before each sample; that of a slot's first sample means nothing
    masks: np.ndarray  # [M, words] int32: bit t % 32 of word t // 32 says whether token t may stand there
