"""The least logit that min-p, top-k and top-p leave (steps 4 and 5 of `gpu_workers.sampling.sampler`), without sorting.

The survey has left the greatest logit of each group of 32 tokens. A few groups hold all that matters: with top-k those whose
greatest reaches the k-th greatest of the groups' greatest (at least k tokens reach it), with min-p those whose greatest stays,
with top-p alone those whose greatest hold the needed mass already. One program reads the tokens of these groups and halves the
range of codes until the threshold is found. Where too many groups are left, as of flat distributions, it walks the whole row
and quarters the range with each walk.

FlashInfer finds thresholds by pivots over the whole row ("sorting-free sampling", 2025); here the range is narrowed before.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from gpu_workers.cuda.kernels.sampling.columns import MIN_P, TEMPERATURE, TOP_K, TOP_P, of_slot
from gpu_workers.cuda.kernels.sampling.logits import code_of, is_edited, is_left_out, place_of, read_logits

GROUP = tl.constexpr(32)  # tokens whose greatest logit the survey leaves
ALL_STAY = tl.constexpr(-(1 << 31))  # less than `code_of` any logit
_HIGHEST = tl.constexpr((1 << 31) - 1)
_MARGIN = tl.constexpr(1 + 2.0**-16)  # covers the rounding of two sums over a vocabulary


@triton.jit
def is_filtered(SAMPLING, slot):
    """True if the slot samples with min-p, top-k or top-p."""
    top_k = of_slot(SAMPLING, slot, TOP_K, tl.int32)
    top_p = of_slot(SAMPLING, slot, TOP_P, tl.float32)
    min_p = of_slot(SAMPLING, slot, MIN_P, tl.float32)
    return (of_slot(SAMPLING, slot, TEMPERATURE, tl.float32) > 0.0) & ((top_k > 0) | (top_p < 1.0) | (min_p > 0.0))


@triton.jit
def _least_of_number(codes, wanted, low, high):
    """The greatest number that at least `wanted` of the codes reach. low, high: int64; the answer lies between or is one."""
    while low < high:
        middle = low + (high - low + 1) // 2
        is_enough = tl.sum((codes >= middle.to(tl.int32)).to(tl.int32)) >= wanted
        low = tl.where(is_enough, middle, low)
        high = tl.where(is_enough, high, middle - 1)
    return low


@triton.jit
def _least_of_mass(codes, masses, needed, low, high):
    """As `_least_of_number`, for the sum of the masses of those that reach it; never a number that no mass reaches."""
    while low < high:
        middle = low + (high - low + 1) // 2
        mass = tl.sum(tl.where(codes >= middle.to(tl.int32), masses, 0.0))
        is_enough = (mass > 0.0) & (mass >= needed)
        low = tl.where(is_enough, middle, low)
        high = tl.where(is_enough, high, middle - 1)
    return low


@triton.jit
def _least_of_bound(bound, scale, low, high, shift):
    """The least shifted code from `low` to `high` whose logit, scaled, is at least `bound`; that of `high` is."""
    while low < high:
        middle = low + (high - low) // 2
        trailing = tl.where(middle < 0, (tl.full((), 1, tl.int32) << shift) - 1, 0)
        code = (middle << shift).to(tl.int32) | trailing
        stays = code_of(code.to(tl.float32, bitcast=True)).to(tl.float32, bitcast=True) * scale >= bound
        high = tl.where(stays, middle, high)
        low = tl.where(stays, low, middle + 1)
    return low


@triton.jit
def _least_by_walks(
    LOGITS, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, V, by_mass, needed, top_p, low, high,
    shift, scale, maximum, WALK: tl.constexpr,
):  # fmt: skip
    """As `_least_of_mass` (by_mass) or `_least_of_number`, of the whole row. Each walk quarters the range.

    needed: if it is less than 0, the first walk measures the mass that reaches `low`, and top_p of it is needed."""
    while low < high:
        span = tl.where(needed < 0.0, 0, high - low)
        first, second, third = low + (span + 3) // 4, low + (span + 1) // 2, low + (3 * span + 3) // 4
        above_first = tl.zeros((WALK,), tl.float32)
        above_second = tl.zeros((WALK,), tl.float32)
        above_third = tl.zeros((WALK,), tl.float32)
        for start in range(0, V, WALK):
            token = start + tl.arange(0, WALK)
            x = read_logits(
                LOGITS, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V
            )  # fmt: skip
            codes = code_of(x) >> shift
            # A number is exact: a vocabulary has fewer than 2^24 tokens.
            weights = tl.where(token < V, tl.where(by_mass, tl.exp(x * scale - maximum), 1.0), 0.0)
            above_first += tl.where(codes >= first.to(tl.int32), weights, 0.0)
            above_second += tl.where(codes >= second.to(tl.int32), weights, 0.0)
            above_third += tl.where(codes >= third.to(tl.int32), weights, 0.0)
        from_first, from_second, from_third = tl.sum(above_first, 0), tl.sum(above_second, 0), tl.sum(above_third, 0)
        if needed < 0.0:
            needed = from_first * top_p
        else:
            to_third = (from_third > 0.0) & (from_third >= needed)
            to_second = (from_second > 0.0) & (from_second >= needed)
            to_first = (from_first > 0.0) & (from_first >= needed)
            low = tl.where(to_third, third, tl.where(to_second, second, tl.where(to_first, first, low)))
            high = tl.where(to_third, high, tl.where(to_second, third - 1, tl.where(to_first, second - 1, first - 1)))
    return low


@triton.jit(do_not_specialize_on_alignment=["INDEX", "BEGINS", "SLOTS", "POSITIONS", "DRAFTS"])
def least_kernel(
    LOGITS, INDEX, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, POSITIONS, SAMPLING, MAXIMA, SUMS, GREATEST, KEPT, LEAST,
    V, stride_logits, n_chunks, stride_groups,
    CHUNKS: tl.constexpr, GROUPS: tl.constexpr, MOST: tl.constexpr, WALK: tl.constexpr, SHIFT: tl.constexpr,
    LATER: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Writes `code_of` the least logit that stays; one program for each row. SHIFT: trailing bits of a code in which the logits
    as the model gives them never differ while the other bits are equal; MOST: groups that are read at once."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + row)
    if is_left_out(INDEX, SAMPLING, row, slot, LATER):
        return
    if not is_filtered(SAMPLING, slot):
        tl.store(LEAST + row, ALL_STAY)
    else:
        position = tl.load(POSITIONS + row) + 1
        top_k = of_slot(SAMPLING, slot, TOP_K, tl.int32)
        top_p = of_slot(SAMPLING, slot, TOP_P, tl.float32)
        min_p = of_slot(SAMPLING, slot, MIN_P, tl.float32)
        edited = is_edited(SAMPLING, COUNTS, slot, position)
        shift = tl.where(edited, 0, SHIFT)
        scale = 1.0 / of_slot(SAMPLING, slot, TEMPERATURE, tl.float32)
        chunk = tl.arange(0, CHUNKS)
        maxima = tl.load(MAXIMA + row * n_chunks + chunk, mask=chunk < n_chunks, other=float("-inf"))
        sums = tl.load(SUMS + row * n_chunks + chunk, mask=chunk < n_chunks, other=0.0)
        maximum = tl.max(maxima, 0)
        group = tl.arange(0, GROUPS)
        n_groups = tl.cdiv(V, GROUP)
        greatest = tl.load(GREATEST + row * stride_groups + group, mask=group < n_groups, other=float("-inf"))
        codes = code_of(greatest) >> shift
        low = tl.min(tl.where(group < n_groups, codes, _HIGHEST), 0).to(tl.int64)
        high = tl.max(codes, 0).to(tl.int64)
        limits = (top_k > 0) & (top_k < V)
        least = (tl.full((), ALL_STAY, tl.int32) >> shift).to(tl.int64)
        start = least  # the least that min-p leaves
        if min_p > 0.0:  # the bound is the maximum itself at most, so rounding cannot put out all tokens
            start = _least_of_bound(tl.minimum(maximum + tl.log(min_p), maximum), scale, start, high, shift)
        top_p_alone = (top_p < 1.0) & (min_p == 0.0) & ((top_k <= 0) | (top_k >= V))
        total = tl.sum(sums * tl.exp(maxima - maximum), 0)
        if limits:
            if top_k <= n_groups:
                least = _least_of_number(codes, top_k, low, high)
        elif top_p_alone:
            masses = tl.exp(greatest * scale - maximum)
            if tl.sum(masses, 0) >= total * top_p * _MARGIN:
                least = _least_of_mass(codes, masses, total * top_p * _MARGIN, low, high)
        kept = (group < n_groups) & (codes >= tl.maximum(least, start).to(tl.int32))
        n_kept = tl.sum(kept.to(tl.int32), 0)
        first = LOGITS + place_of(INDEX, row) * stride_logits
        if n_kept <= MOST:
            place = tl.arange(0, MOST)
            tl.store(KEPT + row * MOST + tl.cumsum(kept.to(tl.int32), 0) - 1, group, mask=kept)
            tl.debug_barrier()
            index = tl.load(KEPT + row * MOST + place, mask=place < n_kept, other=n_groups, cache_modifier=".cg")
            token = index[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
            x = read_logits(first, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V)
            codes_read = code_of(x) >> shift
            if limits:
                least = _least_of_number(codes_read, top_k, least, high)
            least = tl.maximum(least, start)
            if top_p < 1.0:
                masses_read = tl.where(codes_read >= least.to(tl.int32), tl.exp(x * scale - maximum), 0.0)
                mass = tl.where(top_p_alone, total, tl.sum(masses_read))
                least = _least_of_mass(codes_read, masses_read, mass * top_p, least, high)
        else:
            for stage in range(0, 2):  # top-k, then top-p
                needed = tl.where(stage == 0, top_k.to(tl.float32), -1.0)
                runs = limits
                if stage == 1:
                    runs = top_p < 1.0
                    least = tl.maximum(least, start)
                    if top_p_alone:  # all tokens below this one together hold less than what may go
                        needed = total * top_p
                        spare = tl.log(total * (1.0 - top_p) / V) - 0.01
                        least = tl.maximum(least, (code_of((maximum + spare) / scale) >> shift).to(tl.int64))
                if runs:
                    least = _least_by_walks(
                        first, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, V, stage == 1,
                        needed, top_p, least, high, shift, scale, maximum, WALK,
                    )  # fmt: skip
        tl.store(LEAST + row, least.to(tl.int32) << shift)
