"""The operations of a layer on CPUs with weights of 4-bit integers, and a head of 8 bits; see `kernels.int4_weights`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_workers.cpu.deterministic import DeterministicCpuOps
from gpu_workers.cpu.int8_ops import Int8CpuOps, Int8Weight
from gpu_workers.cpu.kernels import int4_matrix, int4_weights, int8_matrix, int8_weights
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.stored_integers import pack_4_bits
from gpu_workers.layers.quantized.stored_weight import StoredWeight


@dataclass(frozen=True)
class Int4Weight(Int8Weight):
    """A weight [n_out, n_in] as `int4_weights.pack` made it."""


class Int4CpuOps(Int8CpuOps):
    """`Int8CpuOps` whose weights have 4 bits, but for those of the head, where errors cost most."""

    def __init__(self, dtype: torch.dtype, machine: Machine, page_dtype: torch.dtype | None = None) -> None:
        super().__init__(dtype, machine, page_dtype)
        is_bf16, kind = dtype == torch.bfloat16, int4_matrix.RowsTimesNibbles
        self._nibble_product = compile_kernel(lambda code: int8_matrix.write_product(code, is_bf16, kind), machine)

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> 4-bit integers, uint8 [`int4_weights.packed_size(out, in)`]."""
        return int4_weights.pack(weight)

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        """The 4-bit integers of a checkpoint as they are, in the form of `pack`; None where they do not fit it."""
        return pack_4_bits(stored)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> 8-bit integers, uint8 [`int8_weights.packed_size(out, in)`]."""
        return int8_weights.pack(weight)

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` or `pack_head` -> an Int4Weight or Int8Weight; on the device "meta" the same tensor."""
        weight = super().linear_weight(packed)
        if packed.is_meta or int8_weights.read_bits(packed) != int4_weights.BITS:
            return weight
        return Int4Weight(weight.packed, weight.address, weight.n_out, weight.n_in)

    def product_of(self, weight: Int8Weight) -> Kernel:
        """The kernel that multiplies with this weight, of 4 or 8 bits."""
        return self._nibble_product if isinstance(weight, Int4Weight) else super().product_of(weight)


class DeterministicInt4CpuOps(Int4CpuOps, DeterministicCpuOps):
    """`Int4CpuOps` without torch: what has no kernel is refused with a ConfigError, at the latest by the warm-up."""
