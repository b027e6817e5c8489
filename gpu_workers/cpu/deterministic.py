"""Operations and attention on CPUs whose result for a token depends on that token alone, not on the rest of the batch.

Every product, norm and attention goes through the compiled kernels, whatever the number of rows: each of them computes a row by
itself, in an order of additions that only the shape of the weight or the number of keys determines. So a token that is computed
again, in a prompt or beside others, gets the same bits as when it was decoded. Torch and oneDNN are not used, because
they choose another order for another number of rows. The idea of batch-invariant kernels: Horace He and Thinking Machines Lab,
"Defeating Nondeterminism in LLM Inference" (2025).
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cpu.attention import CpuAttention
from gpu_workers.cpu.kernels import matrix
from gpu_workers.cpu.kernels.calls import DirectCalls
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.ops import CpuOps, PackedWeight
from gpu_workers.layers.attention import AttentionStep
from messages.errors import ConfigError


class KernelsOnly(DirectCalls):
    """Runs each kernel at once, and never falls back to torch."""

    def leave_to_torch(self, what: str) -> None:
        """Refuse an operation that has no kernel. Raises: ConfigError, always."""
        raise ConfigError(f"worker.deterministic: expected false for this model on CPU cores, got true (no kernel for {what})")


class DeterministicCpuOps(CpuOps):
    """`CpuOps` without torch: what has no kernel is refused with a ConfigError, at the latest by the warm-up."""

    def __init__(self, dtype: torch.dtype, machine: Machine, page_dtype: torch.dtype | None = None) -> None:
        super().__init__(dtype, machine, page_dtype)
        self._calls = KernelsOnly()
        self._most_kernel_rows = sys.maxsize
        if machine.lanes * 4 != matrix.BLOCK:
            self._pass_rows = 1  # the sums of more rows do not fit the registers

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> the layout of `matrix.pack`, not that of oneDNN, which depends on the processor. Raises:
        ConfigError for a weight that our kernel cannot multiply."""
        n_out, n_in = weight.shape
        if n_out % matrix.BLOCK or n_in % matrix.together(weight.dtype) or weight.dtype != self._dtype:
            self._calls.leave_to_torch(f"a weight of {n_out} x {n_in} numbers in {weight.dtype}")
        return matrix.pack(weight)

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` -> a PackedWeight."""
        n_blocks, n_steps, _, pair = packed.shape
        return PackedWeight(packed, packed.data_ptr(), n_steps * pair, n_blocks * matrix.BLOCK)

    def linear(self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, by our kernel for any T."""
        if not x.shape[0]:
            return x.new_empty((0, weight.n_out))
        return super().linear(x.contiguous(), weight, bias)


class DeterministicCpuAttention(CpuAttention):
    """`CpuAttention` that computes the tokens of long rows one by one too."""

    def __init__(
        self, dtype: torch.dtype, shared_heads: int, n_kv_heads: int, head_dim: int, page_dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(dtype, shared_heads, n_kv_heads, head_dim, page_dtype)
        self._most_kernel_tokens = sys.maxsize

    def prepare(self, step: StepTensors, window: int | None = None) -> AttentionStep:
        """The arguments of the kernel for this step. Raises: ConfigError for a window."""
        if window is not None:
            KernelsOnly().leave_to_torch("attention with a window")
        return super().prepare(step)
