"""Counts the known tokens of slots, for penalties: see `logits` for the layout of a count."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.cuda.kernels.sampling.columns import N_PROMPT, of_slot
from gpu_workers.cuda.kernels.sampling.logits import IN_PROMPT, N_BIASES, counts_of

_BLOCK, _PROGRAMS = 512, 16  # tokens at once, programs of one slot


@triton.jit(do_not_specialize_on_alignment=["SLOTS", "LENGTHS"])
def _count_kernel(SLOTS, LENGTHS, SAMPLING, TOKENS, COUNTS, V, stride_tokens, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(SLOTS + row)
    length = tl.load(LENGTHS + row).to(tl.int32)
    n_prompt = of_slot(SAMPLING, slot, N_PROMPT, tl.int64)
    for first in range(tl.program_id(0) * BLOCK, length, PROGRAMS * BLOCK):
        position = first + tl.arange(0, BLOCK)
        token = tl.load(TOKENS + slot * stride_tokens + position, mask=position < length, other=0)
        in_prompt = position < n_prompt
        count = counts_of(COUNTS, slot, V) + token
        tl.atomic_or(count, IN_PROMPT, mask=in_prompt & (position < length), sem="relaxed")
        tl.atomic_add(count, 1, mask=(position >= n_prompt) & (position < length), sem="relaxed")


def count_tokens(slots: torch.Tensor, lengths: torch.Tensor, state: DeviceState, counts: torch.Tensor) -> None:
    """Writes the counts of the first lengths[i] tokens of slots[i] to counts[slots[i]], with nothing banned and no biases.

    slots, lengths: [N] int64, slots distinct; counts: [n_slots + 1, vocabulary + N_BIASES] int32; all on the state's device."""
    counts.index_fill_(0, slots, 0)
    _count_kernel[(_PROGRAMS, len(slots))](
        slots, lengths, state.sampling, state.tokens, counts, counts.shape[1] - N_BIASES.value, state.tokens.stride(0),
        BLOCK=_BLOCK, PROGRAMS=_PROGRAMS, num_warps=4,
    )  # fmt: skip
