"""The next token of each row: greedy, or by temperature, min-p, top-k and top-p, as in `gpu_workers.sampling.sampler`.

    survey    finds the maximum and the sum of each chunk of the vocabulary
    least     for rows with a filter: finds the least logit that stays, see `threshold`
    filter    for rows with a filter: computes the sums again, of the logits that stay
    pick      finds the chunk in which the noise falls, reads it again and picks the token

Rows with rules, penalties or bans read their logits with these applied, see `logits`; what they cost other rows is one
comparison. Those with a grammar read them without the tokens that it forbids, see `masks`.
Noise is the top 24 bits of the first word of Philox4x32-10 with key seed and counter (position, 0, 0, 0).
Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from gpu_workers.cuda.kernels.sampling.columns import SEED, TEMPERATURE, of_slot
from gpu_workers.cuda.kernels.sampling.logits import (
    code_of,
    counts_of,
    follows,
    is_edited,
    is_left_out,
    place_of,
    read_logits,
)
from gpu_workers.cuda.kernels.sampling.masks import RowMasks, arguments_of
from gpu_workers.cuda.kernels.sampling.threshold import ALL_STAY, GROUP, is_filtered, least_kernel

_CHUNK = 2048
_WALK = 4096  # logits that a program reads at once when it reads a whole row
_MOST_GROUPS = 128  # groups of tokens in which a threshold is searched without walks
# At most: rows with penalties need more registers, which must not take the occupancy that other rows need.
_REGISTERS, _LEAST_REGISTERS = 64, 128
_EQUAL_BITS = {torch.bfloat16: 16, torch.float16: 12, torch.float32: 0}  # see `least_kernel`


@triton.jit(do_not_specialize_on_alignment=["INDEX", "BEGINS", "SLOTS", "POSITIONS", "DRAFTS"])
def _survey_kernel(
    LOGITS, INDEX, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, POSITIONS, SAMPLING, MAXIMA, SUMS, BEST, GREATEST,
    V, stride_logits, n_chunks, stride_groups,
    CHUNK: tl.constexpr, LATER: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(SLOTS + row)
    if is_left_out(INDEX, SAMPLING, row, slot, LATER):
        return
    position = tl.load(POSITIONS + row) + 1
    temperature = of_slot(SAMPLING, slot, TEMPERATURE, tl.float32)
    scale = tl.where(temperature > 0.0, 1.0 / temperature, 1.0)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    edited = is_edited(SAMPLING, COUNTS, slot, position)
    first = LOGITS + place_of(INDEX, row) * stride_logits
    x = read_logits(first, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V)
    if is_filtered(SAMPLING, slot):
        group = chunk * (CHUNK // GROUP) + tl.arange(0, CHUNK // GROUP)
        tl.store(GREATEST + row * stride_groups + group, tl.max(tl.reshape(x, (CHUNK // GROUP, GROUP)), 1))
    x = x * scale
    maximum, place = tl.max(x, 0, return_indices=True)
    shift = tl.where(maximum > float("-inf"), maximum, 0.0)
    at = row * n_chunks + chunk
    tl.store(MAXIMA + at, maximum)
    tl.store(SUMS + at, tl.sum(tl.exp(x - shift), 0))
    tl.store(BEST + at, chunk * CHUNK + place)


@triton.jit(do_not_specialize_on_alignment=["INDEX", "BEGINS", "SLOTS", "POSITIONS", "DRAFTS"])
def _filter_kernel(
    LOGITS, INDEX, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, POSITIONS, SAMPLING, LEAST, MAXIMA, SUMS, V, stride_logits, n_chunks,
    CHUNK: tl.constexpr, LATER: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(SLOTS + row)
    if is_left_out(INDEX, SAMPLING, row, slot, LATER):
        return
    least = tl.load(LEAST + row)
    if least > ALL_STAY:
        position = tl.load(POSITIONS + row) + 1
        scale = 1.0 / of_slot(SAMPLING, slot, TEMPERATURE, tl.float32)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        edited = is_edited(SAMPLING, COUNTS, slot, position)
        first = LOGITS + place_of(INDEX, row) * stride_logits
        x = read_logits(first, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V)
        stays = (code_of(x) >= least) & (token < V)
        at = row * n_chunks + chunk
        maximum = tl.load(MAXIMA + at)
        shift = tl.where(maximum > float("-inf"), maximum, 0.0)
        tl.store(SUMS + at, tl.sum(tl.where(stays, tl.exp(x * scale - shift), 0.0), 0))


@triton.jit(do_not_specialize_on_alignment=["INDEX", "BEGINS", "SLOTS", "POSITIONS", "DRAFTS"])
def _pick_kernel(
    LOGITS, INDEX, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, POSITIONS, SAMPLING, LEAST, MAXIMA, SUMS, BEST, TOKENS, IDS,
    V, stride_logits, n_chunks, stride_tokens, dummy_slot,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, ADVANCE: tl.constexpr, LATER: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + row)
    if is_left_out(INDEX, SAMPLING, row, slot, LATER):
        return
    position = tl.load(POSITIONS + row) + 1
    temperature = of_slot(SAMPLING, slot, TEMPERATURE, tl.float32)
    edited = is_edited(SAMPLING, COUNTS, slot, position)
    chunk = tl.arange(0, CHUNKS)
    maxima = tl.load(MAXIMA + row * n_chunks + chunk, mask=chunk < n_chunks, other=float("-inf"))
    maximum, best_chunk = tl.max(maxima, 0, return_indices=True)
    chosen = tl.load(BEST + row * n_chunks + best_chunk)
    if temperature > 0.0:
        sums = tl.load(SUMS + row * n_chunks + chunk, mask=chunk < n_chunks, other=0.0) * tl.exp(maxima - maximum)
        reached = tl.cumsum(sums, 0)
        u = (tl.randint(of_slot(SAMPLING, slot, SEED, tl.int64), position.to(tl.uint32)) >> 8).to(tl.float32) * (
            1.0 / (1 << 24)
        )
        target = u * tl.sum(tl.where(chunk == n_chunks - 1, reached, 0.0), 0)
        last_chunk = tl.max(tl.where(sums > 0.0, chunk, 0), 0)
        found = tl.minimum(tl.sum((reached <= target).to(tl.int32), 0), last_chunk)
        before = tl.sum(tl.where(chunk == found, reached - sums, 0.0), 0)
        place = tl.arange(0, CHUNK)
        token = found * CHUNK + place
        first = LOGITS + place_of(INDEX, row) * stride_logits
        x = read_logits(first, MASKS, BEGINS, COUNTS, DRAFTS, SLOTS, SAMPLING, row, slot, position, edited, token, V)
        stays = (code_of(x) >= tl.load(LEAST + row)) & (token < V)
        likely = tl.where(stays, tl.exp(x * (1.0 / temperature) - maximum), 0.0)
        within = before + tl.cumsum(likely, 0)
        last = tl.max(tl.where(likely > 0.0, place, 0), 0)  # rounding must not lead past the last possible token
        chosen = found * CHUNK + tl.minimum(tl.sum((within <= target).to(tl.int32), 0), last)
    tl.store(IDS + place_of(INDEX, row), chosen.to(tl.int64))
    if ADVANCE:
        tl.store(TOKENS + slot * stride_tokens + position, chosen.to(tl.int32))
        if COUNTS is not None:  # noqa: SIM102  (known when the kernel is compiled)
            if edited:
                counts = True
                if DRAFTS is not None:  # of these tokens only some will be accepted
                    last = tl.num_programs(0) - 1
                    is_followed = (row < last) & (tl.load(SLOTS + tl.minimum(row + 1, last)) == slot)
                    counts = not (follows(SLOTS, row, slot) | is_followed)
                if counts:
                    count = counts_of(COUNTS, slot, V) + chosen
                    tl.store(count, tl.load(count) + 1)
        tl.store(POSITIONS + row, tl.where(slot == dummy_slot, position - 1, position))


@dataclass(frozen=True)
class SamplingScratch:
    """Results that each kernel leaves for the next, on the device."""

    maxima: torch.Tensor  # [n_rows, n_chunks] float32
    sums: torch.Tensor  # [n_rows, n_chunks] float32
    best: torch.Tensor  # [n_rows, n_chunks] int32
    greatest: torch.Tensor  # [n_rows, groups of all chunks] float32: of rows with a filter
    kept: torch.Tensor  # [n_rows, _MOST_GROUPS] int32: groups in which the threshold is searched
    least: torch.Tensor  # [n_rows] int32: `code_of` the least logit that stays

    @classmethod
    def allocate(cls, n_rows: int, vocabulary: int, device: torch.device) -> SamplingScratch:
        """For at most n_rows rows of logits."""
        n_chunks = triton.cdiv(vocabulary, _CHUNK)

        def empty(dtype: torch.dtype, *columns: int) -> torch.Tensor:
            return torch.empty((n_rows, *columns), dtype=dtype, device=device)

        return cls(
            maxima=empty(torch.float32, n_chunks),
            sums=empty(torch.float32, n_chunks),
            best=empty(torch.int32, n_chunks),
            greatest=empty(torch.float32, n_chunks * (_CHUNK // GROUP.value)),
            kept=empty(torch.int32, _MOST_GROUPS),
            least=empty(torch.int32),
        )


def sample_rows(
    logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: DeviceState, ids: torch.Tensor, *,
    advance: bool, scratch: SamplingScratch | None = None, counts: torch.Tensor | None = None,
    drafts: torch.Tensor | None = None, masks: RowMasks | Literal["later"] | None = None,
) -> None:  # fmt: skip
    """Samples the token at position positions[i] + 1 of slots[i] from logits[i] into ids[i].

    logits: [S, V] float32, bfloat16 or float16, rows contiguous; slots, positions, ids: [S] int64; counts: [n_slots + 1,
    V + N_BIASES] int32, see `logits`, those of the tokens up to positions[i]; without them logits are used unchanged. drafts:
    [S] int64, the tokens at positions[i]; then rows that follow each other may have one slot, at rising positions, and counts
    are those of the first. masks: of M samples; slots, positions and drafts are then [M]; "later": nothing is done for slots
    that have a grammar. All on the state's device. With `advance` the token is also written to `state.tokens` and, if its slot
    has one row, counted; `positions` rise by one where the slot is not the dummy."""
    n_rows, vocabulary = len(slots), logits.shape[1]
    if n_rows == 0:
        return
    scratch = scratch or SamplingScratch.allocate(n_rows, vocabulary, logits.device)
    n_chunks, n_groups = triton.cdiv(vocabulary, _CHUNK), scratch.greatest.shape[1]
    pdl = dependent_launch(logits.device)
    rows = (logits, *arguments_of(masks), counts, drafts, slots, positions, state.sampling)
    sizes = (vocabulary, logits.stride(0), n_chunks)
    common = {"LATER": masks == "later", "PDL": pdl, "launch_pdl": pdl, "enable_fp_fusion": False}
    _survey_kernel[(n_chunks, n_rows)](
        *rows, scratch.maxima, scratch.sums, scratch.best, scratch.greatest, *sizes, n_groups,
        CHUNK=_CHUNK, num_warps=4, maxnreg=_REGISTERS, **common,
    )  # fmt: skip
    least_kernel[(n_rows,)](
        *rows, scratch.maxima, scratch.sums, scratch.greatest, scratch.kept, scratch.least, *sizes, n_groups,
        CHUNKS=power_of_two(n_chunks), GROUPS=power_of_two(triton.cdiv(vocabulary, GROUP.value)), MOST=_MOST_GROUPS,
        WALK=_WALK, SHIFT=_EQUAL_BITS[logits.dtype], num_warps=8, maxnreg=_LEAST_REGISTERS, **common,
    )  # fmt: skip
    _filter_kernel[(n_chunks, n_rows)](
        *rows, scratch.least, scratch.maxima, scratch.sums, *sizes,
        CHUNK=_CHUNK, num_warps=4, maxnreg=_REGISTERS, **common,
    )  # fmt: skip
    _pick_kernel[(n_rows,)](
        *rows, scratch.least, scratch.maxima, scratch.sums, scratch.best, state.tokens, ids,
        *sizes, state.tokens.stride(0), state.n_slots,
        CHUNK=_CHUNK, CHUNKS=power_of_two(n_chunks), ADVANCE=advance, num_warps=4, **common,
    )  # fmt: skip
