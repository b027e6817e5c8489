"""Logits as the sampling rule sees them: with the penalties and bans of their row applied while they are read (step 1 of
`gpu_workers.sampling.sampler`). Device functions only.

A row that asks for penalties or bans has counts, one int32 for each token of the vocabulary:

    bits 0 to 28   how often the token occurs in the output
    bit 29         it occurs in the prompt
    bit 30         it is banned

The arithmetic is float32, and each operation rounds as torch rounds it: kernels that edit are launched without fused
multiply-add.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from gpu_workers.cuda.kernels.sampling.columns import (
    BANNED_UNTIL,
    EDITED_UNTIL,
    FREQUENCY,
    PRESENCE,
    REPETITION,
    of_slot,
)

OUTPUT_COUNT = tl.constexpr((1 << 29) - 1)
IN_PROMPT = tl.constexpr(1 << 29)
BANNED = tl.constexpr(1 << 30)


@triton.jit
def is_edited(SAMPLING, COUNTS, slot, position):
    """True if the logits for this position (int64) of the slot are changed. COUNTS None: none is."""
    edited = position < 0
    if COUNTS is not None:
        edited = position < of_slot(SAMPLING, slot, EDITED_UNTIL, tl.int64)
    return edited


@triton.jit
def follows(SLOTS, row, slot):
    """True if the row before this one samples for the same slot, so that this row comes after a draft."""
    return (row > 0) & (tl.load(SLOTS + tl.maximum(row - 1, 0)) == slot)


@triton.jit
def read_logits(LOGITS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V):
    """The logits of tokens [...] as float32, those of tokens from V on as minus infinity.

    LOGITS: the row's first logit; COUNTS: of all slots, or None; DRAFTS: None, or for each row the token before its position,
    which counts do not have where the row `follows` another one; edited: as `is_edited` says."""
    x = tl.load(LOGITS + token, mask=token < V, other=float("-inf")).to(tl.float32)
    if COUNTS is not None:  # noqa: SIM102  (known when the kernel is compiled)
        if edited:
            count = tl.load(COUNTS + slot * V + token, mask=token < V, other=0)
            if DRAFTS is not None:
                after = row
                while follows(SLOTS, after, slot):
                    count += (token == tl.load(DRAFTS + after)).to(tl.int32)
                    after -= 1
            repetition = of_slot(SAMPLING, slot, REPETITION, tl.float32)
            presence = of_slot(SAMPLING, slot, PRESENCE, tl.float32)
            frequency = of_slot(SAMPLING, slot, FREQUENCY, tl.float32)
            bans = position < of_slot(SAMPLING, slot, BANNED_UNTIL, tl.int64)
            repeated = tl.where(x > 0.0, tl.math.div_rn(x, repetition), x * repetition)
            x = tl.where((count & (OUTPUT_COUNT | IN_PROMPT)) != 0, repeated, x)
            n_output = count & OUTPUT_COUNT
            x = tl.where(n_output > 0, x - (n_output.to(tl.float32) * frequency + presence), x)
            x = tl.where(bans & ((count & BANNED) != 0), float("-inf"), x)
    return x


@triton.jit
def code_of(x):
    """float32 -> int32 in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
