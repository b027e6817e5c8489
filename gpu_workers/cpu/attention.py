"""Attention over pages on CPUs: a compiled kernel reads the keys of short rows from their pages; torch computes long rows.

Measured on one Zen 4 core, 64 rows of 128 to 256 keys, 9 heads on 3, bfloat16: 1.3 ms a layer in a whole step, where gathering
and multiplying with torch took 4.1 ms. A prompt of SmolLM2 in bfloat16, all of a step: 512 tokens 530 -> 348 ms of processor
time, 4,096 tokens 10.3 -> 7.6 s.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cpu.kernels.calls import Calls, DirectCalls
from gpu_workers.cpu.kernels.machine import can_attend, this_machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.kernels.pages.int4_attention import SmallUnit
from gpu_workers.cpu.kernels.pages.paged_attention import LOG2_E, AttentionShape, AttentionUnit, write_paged_attention
from gpu_workers.cpu.kernels.vector_code import float_bits
from gpu_workers.layers.attention import (
    MAX_BATCHED_COUNT,
    Attention,
    AttentionStep,
    RowGroup,
    TorchAttention,
    attend_group,
)
from gpu_workers.layers.page_format import INT4
from messages.steps import PAGE_TOKENS


@dataclass(frozen=True)
class CpuKernel:
    """The compiled kernel for heads of one shape, and the object that makes its calls."""

    calls: Calls
    shape: AttentionShape
    kernel: Kernel
    scratches: int  # scores that it keeps of each key


@dataclass(frozen=True)
class CpuStep(AttentionStep):
    """The tokens of short rows, longest first, and the long rows. Tensors are on the host."""

    compiled: CpuKernel
    places: torch.Tensor  # [N] int64: flat tokens
    rows: torch.Tensor  # [N] int64: of the page table
    n_keys: torch.Tensor  # [N] int64
    page_table: torch.Tensor  # [R, P] int32
    scratch: torch.Tensor  # [threads, scores of one unit] float32
    long_rows: tuple[RowGroup, ...]

    def attend(self, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, scale: float) -> torch.Tensor:
        """Short rows by one call of the compiled kernel, then each group of long rows by torch. Shapes as in
        `AttentionStep.attend`."""
        calls = self.compiled.calls
        out = calls.empty(q.shape, q.dtype)
        if len(self.places):
            pages = (q.data_ptr(), k_pages.data_ptr(), v_pages.data_ptr(), k_pages.stride(0), out.data_ptr())
            table = (self.page_table.data_ptr(), self.page_table.shape[1])
            tokens = (self.places.data_ptr(), self.rows.data_ptr(), self.n_keys.data_ptr())
            scratch = (self.scratch.data_ptr(), self.scratch.shape[1])
            units = len(self.places) * self.compiled.shape.n_kv_heads
            words = (units, *pages, *table, *tokens, *scratch, float_bits(scale * LOG2_E))
            calls.run(self.compiled.kernel, words, run_units=1)
        for group in self.long_rows:
            calls.leave_to_torch("attention of a long row")
            out[group.tokens] = attend_group(q[group.tokens], k_pages, v_pages, group, scale)
        return out


class CpuAttention(Attention):
    """Attention with the compiled kernel, for dtypes and head sizes that `can_attend` accepts."""

    def __init__(
        self, dtype: torch.dtype, shared_heads: int, n_kv_heads: int, head_dim: int, page_dtype: torch.dtype | None = None
    ) -> None:
        """dtype of q; shared_heads: query heads on one kv head; page_dtype: of pages, `dtype` (None), int8 or INT4. Compiles
        the kernel.

        Raises: ValueError for a dtype or head size that `can_attend` refuses, RuntimeError when LLVM refuses the code."""
        machine = this_machine()
        if machine is None or not can_attend(dtype, head_dim, page_dtype):
            raise ValueError(f"attention: expected float32 or bfloat16 and whole vectors, got {dtype} and {head_dim}")
        is_bf16, is_int8 = dtype == torch.bfloat16, page_dtype == torch.int8
        shape = AttentionShape(shared_heads * n_kv_heads, n_kv_heads, head_dim, is_bf16, is_int8)
        kind = SmallUnit if page_dtype == INT4 else AttentionUnit
        kernel = compile_kernel(lambda code: write_paged_attention(code, shape, kind), machine)
        self.compiled = CpuKernel(DirectCalls(), shape, kernel, kind.scratches)
        self._torch = TorchAttention(dtype, shared_heads, n_kv_heads)
        has_no_limit = dtype == torch.bfloat16 and machine.has_bf16_dot
        self._most_kernel_tokens = sys.maxsize if has_no_limit else MAX_BATCHED_COUNT  # of a row; torch computes longer ones

    def prepare(self, step: StepTensors, window: int | None = None) -> AttentionStep:
        """The arguments of the kernel for this step. Where a row is longer than the window, torch computes the whole step."""
        if window is not None and (step.row_starts + step.row_counts).max(initial=0) > window:
            return self._torch.prepare(step, window)
        return self._prepare(step)

    def _prepare(self, step: StepTensors) -> CpuStep:
        counts, starts = step.row_counts.astype(np.int64), step.row_starts.astype(np.int64)
        short = np.flatnonzero(counts <= self._most_kernel_tokens)
        long_rows = np.flatnonzero(counts > self._most_kernel_tokens)
        rows = np.repeat(short, counts[short])
        before = np.repeat(np.cumsum(counts[short]) - counts[short], counts[short])
        within = np.arange(len(rows)) - before
        n_keys = starts[rows] + within + 1
        order = np.argsort(-n_keys, kind="stable")  # short units come last, so that threads end together
        longest = -(-int(n_keys.max(initial=0)) // PAGE_TOKENS) * PAGE_TOKENS
        places = step.row_offsets[rows] + within
        return CpuStep(
            self.compiled,
            _int64s(places[order]),
            _int64s(rows[order]),
            _int64s(n_keys[order]),
            step.page_table.contiguous(),
            torch.empty((torch.get_num_threads(), self.compiled.scratches * self.compiled.shape.shared * longest)),
            tuple(self._torch.group(step, np.array([row]), starts + counts) for row in long_rows),
        )


def _int64s(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.int64))
