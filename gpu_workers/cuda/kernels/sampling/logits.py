"""Logits as the sampling rule sees them: with the rules, penalties and bans of their row applied while they are read (step 1
of `gpu_workers.sampling.sampler`; bad words of several tokens are left to that file). Device functions only.

A row that asks for rules, penalties or bans has counts, one int32 for each token of the vocabulary:

    bits 0 to 19   how often the token occurs in the output
    bits 20 to 29  which of the row's biases is added to its logit; 0: none
    bit 30         it occurs in the prompt
    bit 31         it is banned

They are followed by the values of the row's biases, `N_BIASES` float32 as their bits; the first one is not used.

The arithmetic is float32, and each operation rounds as torch rounds it: kernels that edit are launched without fused
multiply-add.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from gpu_workers.cuda.kernels.sampling.columns import (
    BANNED_UNTIL,
    CONSTRAINED,
    EDITED_UNTIL,
    FREQUENCY,
    PRESENCE,
    REPETITION,
    of_slot,
)

OUTPUT_COUNT = tl.constexpr((1 << 20) - 1)
BIAS_SHIFT = tl.constexpr(20)
N_BIASES = tl.constexpr(1 << 10)
IN_PROMPT = tl.constexpr(1 << 30)
BANNED = tl.constexpr(-(1 << 31))


@triton.jit
def counts_of(COUNTS, slot, V):
    """The first count of a slot."""
    return COUNTS + slot * (V + N_BIASES)


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
def is_left_out(INDEX, SAMPLING, row, slot, LATER: tl.constexpr):
    """True if this launch does not sample the row. INDEX: see `RowMasks`, or None; LATER: rows with a grammar are sampled
    later."""
    left_out = row < 0
    if INDEX is not None:
        left_out = tl.load(INDEX + row) < 0
    if LATER:
        left_out = of_slot(SAMPLING, slot, CONSTRAINED, tl.int32) != 0
    return left_out


@triton.jit
def place_of(INDEX, row):
    """Which row of the logits this row reads."""
    place = row
    if INDEX is not None:
        place = tl.load(INDEX + row)
    return place


@triton.jit
def read_logits(LOGITS, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V):
    """The logits of tokens [...] as float32, those of tokens from V on and of those that a mask forbids as minus infinity.

    LOGITS: the row's first logit; MASKS, BEGINS: see `RowMasks`, or None; COUNTS: of all slots, or None; DRAFTS: None, or for
    each row the token before its position, which counts do not have where the row `follows` another one; edited: as
    `is_edited` says."""
    x = tl.load(LOGITS + token, mask=token < V, other=float("-inf")).to(tl.float32)
    if MASKS is not None:
        word = tl.load(MASKS + tl.load(BEGINS + row) + (token >> 5), mask=token < V, other=0)
        x = tl.where(((word >> (token & 31)) & 1) != 0, x, float("-inf"))
    if COUNTS is not None:  # noqa: SIM102  (known when the kernel is compiled)
        if edited:
            counts = counts_of(COUNTS, slot, V)
            count = tl.load(counts + token, mask=token < V, other=0)
            index = (count >> BIAS_SHIFT) & (N_BIASES - 1)
            x += tl.load(counts + V + index, mask=index > 0, other=0).to(tl.float32, bitcast=True)
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
