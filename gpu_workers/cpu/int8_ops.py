"""The operations of a layer on CPUs with weights of 8-bit integers; see `kernels.int8_weights` and `kernels.int8_matrix`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_workers.cpu.deterministic import DeterministicCpuOps
from gpu_workers.cpu.kernels import int8_matrix, int8_weights
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.ops import MOST_ROWS, CpuOps, cut_product
from gpu_workers.cpu.stored_integers import pack_8_bits
from gpu_workers.layers.quantized.stored_weight import StoredWeight


@dataclass(frozen=True)
class Int8Weight:
    """A weight [n_out, n_in] as `int8_weights.pack` made it."""

    packed: torch.Tensor
    address: int  # of its blocks
    n_out: int
    n_in: int


class Int8CpuOps(CpuOps):
    """`CpuOps` whose linear layers multiply integers. What these compute for a row depends on that row alone."""

    takes_stored = True

    def __init__(self, dtype: torch.dtype, machine: Machine, page_dtype: torch.dtype | None = None) -> None:
        super().__init__(dtype, machine, page_dtype)
        is_bf16 = dtype == torch.bfloat16
        self.most_rows = MOST_ROWS
        self._pass_rows = int8_matrix.MOST_ROWS if machine.lanes * 4 == int8_weights.BLOCK else 1
        self._quantise = compile_kernel(lambda code: int8_matrix.write_quantise(code, is_bf16), machine)
        self._product = compile_kernel(lambda code: int8_matrix.write_product(code, is_bf16), machine)

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> 8-bit integers, uint8 [`int8_weights.packed_size(out, in)`]."""
        return int8_weights.pack(weight)

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        """The integers of a checkpoint as they are, in the form of `pack`; None where they do not fit it."""
        return pack_8_bits(stored)

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` -> an Int8Weight; on the device "meta" the same tensor, with which nothing multiplies."""
        if packed.is_meta:
            return packed
        return Int8Weight(packed, packed.data_ptr() + int8_weights.HEADER_BYTES, *int8_weights.read_shape(packed))

    def product_of(self, weight: Int8Weight) -> Kernel:
        """The kernel that multiplies with this weight."""
        return self._product

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, the product with x rounded to integers. weight: an Int8Weight."""
        n_rows = x.shape[0]
        if x.stride(-1) != 1:
            self._calls.leave_to_torch("a copy of rows that are not contiguous")
            x = x.contiguous()
        out = self._calls.empty((n_rows, weight.n_out), x.dtype)
        if not n_rows:
            return out
        rows = self._integers(x)
        cut = cut_product(n_rows, self._pass_rows, -(-weight.n_out // int8_weights.BLOCK), weight.n_in)
        n_groups = int8_weights.count_groups(weight.n_in)
        addresses = (rows.data_ptr(), weight.address, out.data_ptr())
        words = (cut.n_units, *addresses, n_rows, n_groups, weight.n_out, cut.pass_rows, cut.share)
        self._calls.run(self.product_of(weight), words, cut.run_units)
        return self._biased(out, bias)

    def _integers(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] -> uint8 [T, row_bytes]: its integers, scales and corrections."""
        n_rows, n_in = x.shape
        rows = self._calls.empty((n_rows, int8_matrix.row_bytes(int8_weights.count_groups(n_in))), torch.uint8)
        self._spread(self._quantise, n_rows, n_in, (x.data_ptr(), x.stride(0), n_in, rows.data_ptr()))
        return rows


class DeterministicInt8CpuOps(Int8CpuOps, DeterministicCpuOps):
    """`Int8CpuOps` without torch: what has no kernel is refused with a ConfigError, at the latest by the warm-up."""
