"""The next token of each row: greedy, or by temperature, min-p, top-k and top-p, as in `gpu_workers.sampling.sampler`.
Penalties and banned tokens are not applied: such rows are sampled by torch, see `ModelRunner`.

    survey    finds the maximum and the sum of each chunk of the vocabulary
    least     for rows with a filter: finds the least logit that stays, bit by bit, without sorting
    filter    for rows with a filter: computes the sums again, of the logits that stay
    pick      finds the chunk in which the noise falls, reads it again and picks the token

Noise is the top 24 bits of the first word of Philox4x32-10 with key seed and counter (position, 0, 0, 0).
Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.batch.device_state import SAMPLING_WORDS, DeviceState
from gpu_workers.batch.sampling_table import column_index
from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two

_CHUNK = 2048
_WALK = 8192  # logits that a program reads at once when it reads a whole row
_ALL_STAY = tl.constexpr(0)  # less than `_order` of any logit
_ROW_WORDS = tl.constexpr(SAMPLING_WORDS)
_TEMPERATURE, _MIN_P, _TOP_K, _TOP_P, _SEED = (
    tl.constexpr(column_index(name)) for name in ("temperature", "min_p", "top_k", "top_p", "seed")
)
_ORDER_BITS = {torch.bfloat16: 16, torch.float16: 20, torch.float32: 32}  # leading bits of `_order` in which logits can differ


@triton.jit
def _of_slot(SAMPLING, slot, COLUMN: tl.constexpr, TYPE: tl.constexpr):
    """A column of a slot's row. SAMPLING: `DeviceState.sampling`; TYPE: the column's element type."""
    return tl.load((SAMPLING + slot * _ROW_WORDS).to(tl.pointer_type(TYPE)) + COLUMN)


@triton.jit
def _survey_kernel(
    LOGITS, SLOTS, SAMPLING, MAXIMA, SUMS, BEST, V, stride_logits, n_chunks, CHUNK: tl.constexpr, PDL: tl.constexpr
):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    temperature = _of_slot(SAMPLING, tl.load(SLOTS + row), _TEMPERATURE, tl.float32)
    scale = tl.where(temperature > 0.0, 1.0 / temperature, 1.0)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(LOGITS + row * stride_logits + token, mask=token < V, other=float("-inf")).to(tl.float32) * scale
    maximum, place = tl.max(x, 0, return_indices=True)
    shift = tl.where(maximum > float("-inf"), maximum, 0.0)
    at = row * n_chunks + chunk
    tl.store(MAXIMA + at, maximum)
    tl.store(SUMS + at, tl.sum(tl.exp(x - shift), 0))
    tl.store(BEST + at, chunk * CHUNK + place)


@triton.jit
def _order(x):
    """float32 -> uint32, in the same order."""
    bits = x.to(tl.uint32, bitcast=True)
    return bits ^ tl.where(bits >> 31 == 1, 0xFFFFFFFF, 0x80000000)


@triton.jit
def _measure(row_logits, least, scale, maximum, V, COUNTS: tl.constexpr, WALK: tl.constexpr):
    """The number (COUNTS) or the sum of exponentials of a row's logits whose `_order` is at least `least`."""
    total = 0.0
    for start in range(0, V, WALK):
        token = start + tl.arange(0, WALK)
        x = tl.load(row_logits + token, mask=token < V, other=float("-inf")).to(tl.float32)
        stays = (_order(x) >= least) & (token < V)
        if COUNTS:
            total += tl.sum(stays.to(tl.float32), 0)  # exact: a vocabulary has fewer than 2^24 tokens
        else:
            total += tl.sum(tl.where(stays, tl.exp(x * scale - maximum), 0.0), 0)
    return total


@triton.jit
def _least_from(row_logits, bound, scale, V, WALK: tl.constexpr):
    """`_order` of the least logit of a row whose scaled value is at least `bound`."""
    least = tl.full((), 0xFFFFFFFF, tl.uint32)
    for start in range(0, V, WALK):
        token = start + tl.arange(0, WALK)
        x = tl.load(row_logits + token, mask=token < V, other=float("-inf")).to(tl.float32)
        stays = (x * scale >= bound) & (token < V)
        least = tl.minimum(least, tl.min(tl.where(stays, _order(x), 0xFFFFFFFF), 0))
    return least


@triton.jit
def _least_kernel(
    LOGITS, SLOTS, SAMPLING, MAXIMA, LEAST, V, stride_logits, n_chunks,
    CHUNKS: tl.constexpr, WALK: tl.constexpr, BITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + row)
    temperature = _of_slot(SAMPLING, slot, _TEMPERATURE, tl.float32)
    top_k = _of_slot(SAMPLING, slot, _TOP_K, tl.int32)
    top_p = _of_slot(SAMPLING, slot, _TOP_P, tl.float32)
    min_p = _of_slot(SAMPLING, slot, _MIN_P, tl.float32)
    least = tl.full((), 0, tl.uint32)
    if (temperature > 0.0) & ((top_k > 0) | (top_p < 1.0) | (min_p > 0.0)):
        logits = LOGITS + row * stride_logits
        chunk = tl.arange(0, CHUNKS)
        maximum = tl.max(tl.load(MAXIMA + row * n_chunks + chunk, mask=chunk < n_chunks, other=float("-inf")), 0)
        scale = 1.0 / temperature
        if (top_k > 0) & (top_k < V):
            for bit in range(0, BITS):
                higher = least | (tl.full((), 1, tl.uint32) << (31 - bit))
                if _measure(logits, higher, scale, maximum, V, True, WALK) >= top_k:
                    least = higher
        if min_p > 0.0:  # the bound is the maximum itself at most, so rounding cannot put out all tokens
            least = tl.maximum(least, _least_from(logits, tl.minimum(maximum + tl.log(min_p), maximum), scale, V, WALK))
        if top_p < 1.0:
            needed = _measure(logits, least, scale, maximum, V, False, WALK) * top_p
            before = least
            least = tl.full((), 0, tl.uint32)
            for bit in range(0, BITS):
                higher = least | (tl.full((), 1, tl.uint32) << (31 - bit))
                mass = _measure(logits, tl.maximum(higher, before), scale, maximum, V, False, WALK)
                if (mass > 0.0) & (mass >= needed):
                    least = higher
            least = tl.maximum(least, before)
    tl.store(LEAST + row, least.to(tl.int64))


@triton.jit
def _filter_kernel(
    LOGITS, SLOTS, SAMPLING, LEAST, MAXIMA, SUMS, V, stride_logits, n_chunks, CHUNK: tl.constexpr, PDL: tl.constexpr
):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    least = tl.load(LEAST + row)
    if least > _ALL_STAY:
        scale = 1.0 / _of_slot(SAMPLING, tl.load(SLOTS + row), _TEMPERATURE, tl.float32)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(LOGITS + row * stride_logits + token, mask=token < V, other=float("-inf")).to(tl.float32)
        stays = (_order(x).to(tl.int64) >= least) & (token < V)
        at = row * n_chunks + chunk
        maximum = tl.load(MAXIMA + at)
        shift = tl.where(maximum > float("-inf"), maximum, 0.0)
        tl.store(SUMS + at, tl.sum(tl.where(stays, tl.exp(x * scale - shift), 0.0), 0))


@triton.jit
def _pick_kernel(
    LOGITS, SLOTS, POSITIONS, SAMPLING, LEAST, MAXIMA, SUMS, BEST, TOKENS, IDS,
    V, stride_logits, n_chunks, stride_tokens, dummy_slot,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ADVANCE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + row)
    position = tl.load(POSITIONS + row) + 1
    temperature = _of_slot(SAMPLING, slot, _TEMPERATURE, tl.float32)
    chunk = tl.arange(0, CHUNKS)
    maxima = tl.load(MAXIMA + row * n_chunks + chunk, mask=chunk < n_chunks, other=float("-inf"))
    maximum, best_chunk = tl.max(maxima, 0, return_indices=True)
    chosen = tl.load(BEST + row * n_chunks + best_chunk)
    if temperature > 0.0:
        sums = tl.load(SUMS + row * n_chunks + chunk, mask=chunk < n_chunks, other=0.0) * tl.exp(maxima - maximum)
        reached = tl.cumsum(sums, 0)
        u = (tl.randint(_of_slot(SAMPLING, slot, _SEED, tl.int64), position.to(tl.uint32)) >> 8).to(tl.float32) * (
            1.0 / (1 << 24)
        )
        target = u * tl.sum(tl.where(chunk == n_chunks - 1, reached, 0.0), 0)
        last_chunk = tl.max(tl.where(sums > 0.0, chunk, 0), 0)
        found = tl.minimum(tl.sum((reached <= target).to(tl.int32), 0), last_chunk)
        before = tl.sum(tl.where(chunk == found, reached - sums, 0.0), 0)
        place = tl.arange(0, CHUNK)
        token = found * CHUNK + place
        x = tl.load(LOGITS + row * stride_logits + token, mask=token < V, other=float("-inf")).to(tl.float32)
        stays = (_order(x).to(tl.int64) >= tl.load(LEAST + row)) & (token < V)
        likely = tl.where(stays, tl.exp(x * (1.0 / temperature) - maximum), 0.0)
        within = before + tl.cumsum(likely, 0)
        last = tl.max(tl.where(likely > 0.0, place, 0), 0)  # rounding must not lead past the last possible token
        chosen = found * CHUNK + tl.minimum(tl.sum((within <= target).to(tl.int32), 0), last)
    tl.store(IDS + row, chosen.to(tl.int64))
    if ADVANCE:
        tl.store(TOKENS + slot * stride_tokens + position, chosen.to(tl.int32))
        tl.store(POSITIONS + row, tl.where(slot == dummy_slot, position - 1, position))


@dataclass(frozen=True)
class SamplingScratch:
    """Results that each kernel leaves for the next, on the device."""

    maxima: torch.Tensor  # [n_rows, n_chunks] float32
    sums: torch.Tensor  # [n_rows, n_chunks] float32
    best: torch.Tensor  # [n_rows, n_chunks] int32
    least: torch.Tensor  # [n_rows] int64: `_order` of the least logit that stays

    @classmethod
    def allocate(cls, n_rows: int, vocabulary: int, device: torch.device) -> SamplingScratch:
        """For at most n_rows rows of logits."""
        sizes = (n_rows, triton.cdiv(vocabulary, _CHUNK))
        maxima, sums = (torch.empty(sizes, dtype=torch.float32, device=device) for _ in range(2))
        best = torch.empty(sizes, dtype=torch.int32, device=device)
        return cls(maxima, sums, best, torch.empty(n_rows, dtype=torch.int64, device=device))


def sample_rows(
    logits: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    state: DeviceState,
    ids: torch.Tensor,
    *,
    advance: bool,
    scratch: SamplingScratch | None = None,
) -> None:
    """Samples the token at position positions[i] + 1 of slots[i] from logits[i] into ids[i].

    logits: [S, V] float32, bfloat16 or float16, rows contiguous; slots, positions, ids: [S] int64; all on the state's device.
    With `advance` the token is also written to `state.tokens`, and `positions` rise by one where the slot is not the dummy."""
    n_rows, vocabulary = logits.shape
    if n_rows == 0:
        return
    scratch = scratch or SamplingScratch.allocate(n_rows, vocabulary, logits.device)
    n_chunks = triton.cdiv(vocabulary, _CHUNK)
    pdl = dependent_launch(logits.device)
    _survey_kernel[(n_chunks, n_rows)](
        logits, slots, state.sampling, scratch.maxima, scratch.sums, scratch.best,
        vocabulary, logits.stride(0), n_chunks, CHUNK=_CHUNK, PDL=pdl, num_warps=4, launch_pdl=pdl,
    )  # fmt: skip
    _least_kernel[(n_rows,)](
        logits, slots, state.sampling, scratch.maxima, scratch.least,
        vocabulary, logits.stride(0), n_chunks, CHUNKS=power_of_two(n_chunks), WALK=_WALK, BITS=_ORDER_BITS[logits.dtype],
        PDL=pdl, num_warps=8, launch_pdl=pdl,
    )  # fmt: skip
    _filter_kernel[(n_chunks, n_rows)](
        logits, slots, state.sampling, scratch.least, scratch.maxima, scratch.sums,
        vocabulary, logits.stride(0), n_chunks, CHUNK=_CHUNK, PDL=pdl, num_warps=4, launch_pdl=pdl,
    )  # fmt: skip
    _pick_kernel[(n_rows,)](
        logits, slots, positions, state.sampling, scratch.least, scratch.maxima, scratch.sums, scratch.best,
        state.tokens, ids, vocabulary, logits.stride(0), n_chunks, state.tokens.stride(0), state.n_slots,
        CHUNK=_CHUNK, CHUNKS=power_of_two(n_chunks), ADVANCE=advance, PDL=pdl, num_warps=4, launch_pdl=pdl,
    )  # fmt: skip
