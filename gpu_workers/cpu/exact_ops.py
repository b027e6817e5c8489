"""The operations of a layer on CPUs with weights stored as the integers of which they are made; see `kernels.exact_weights`.

Nothing is rounded: a product has the bits that our float32 kernel gives it, with a seventh of the bytes to read. A weight that
is not made of such integers stays float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
import torch

from gpu_workers.cpu.deterministic import DeterministicCpuOps
from gpu_workers.cpu.kernels import exact_matrix, exact_packing, exact_weights, int8_weights
from gpu_workers.cpu.kernels.exact_weights import BITS, BLOCK, GROUP, HEADER_BYTES, Bits
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.ops import CpuOps, cut_product
from gpu_workers.cpu.stored_integers import pack_exactly
from gpu_workers.layers.quantized.stored_weight import StoredWeight

_DIRECT_PASSES = 2  # with more, writing the numbers of a block once is quicker


@dataclass(frozen=True)
class ExactWeight:
    """A weight [n_out, n_in] as `exact_weights` lays it out."""

    packed: torch.Tensor
    address: int  # of its blocks
    n_out: int
    n_in: int
    bits: Bits


class ExactCpuOps(CpuOps):
    """`CpuOps` in float32 for weights that may be made of integers. Each kernel is compiled when the first weight needs it."""

    takes_stored = True

    def __init__(self, dtype: torch.dtype, machine: Machine, page_dtype: torch.dtype | None = None) -> None:
        super().__init__(dtype, machine, page_dtype)
        self._direct: dict[Bits, Kernel] = {}
        self._tiled: Kernel | None = None
        self._packing: dict[Bits, Kernel] = {}

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> its integers, uint8 [bytes], if they stand for exactly its numbers; else as `CpuOps.pack`."""
        for bits in BITS:
            if (packed := self._integers_of(weight, bits)) is not None:
                return packed
        return super().pack(weight)

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        """The integers of a quantised checkpoint as they are; None where their layout would round anything."""
        packed = pack_exactly(stored)
        if packed is None or not self._can_multiply(4 if int8_weights.read_bits(packed) == 4 else 8):
            return None
        return packed

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` -> an ExactWeight if it has integers, else as `CpuOps.linear_weight`."""
        if packed.dtype != torch.uint8:
            return super().linear_weight(packed)
        bits: Bits = 4 if int8_weights.read_bits(packed) == 4 else 8
        self._compile(bits)
        return ExactWeight(packed, packed.data_ptr() + HEADER_BYTES, *int8_weights.read_shape(packed), bits)

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, for integers by our kernels for any T."""
        if not isinstance(weight, ExactWeight):
            return super().linear(x, weight, bias)
        if not x.is_contiguous():
            self._calls.leave_to_torch("a copy of rows that are not contiguous")
            x = x.contiguous()
        n_rows = x.shape[0]
        out = self._calls.empty((n_rows, weight.n_out), x.dtype)
        if not n_rows:
            return out
        kernel, pass_rows = self._product_of(weight, n_rows)
        cut = cut_product(n_rows, pass_rows, -(-weight.n_out // BLOCK), weight.n_in)
        addresses = (x.data_ptr(), weight.address, out.data_ptr())
        sizes = (n_rows, weight.n_in // GROUP, weight.n_out, cut.pass_rows, cut.share)
        self._calls.run(kernel, (cut.n_units, *addresses, *sizes, weight.bits == 4), cut.run_units)
        return self._biased(out, bias)

    def _product_of(self, weight: ExactWeight, n_rows: int) -> tuple[Kernel, int]:
        """The kernel for so many rows, and the most rows of one of its passes."""
        if n_rows <= _DIRECT_PASSES * exact_matrix.MOST_DIRECT_ROWS or self._tiled is None:
            return self._direct[weight.bits], exact_matrix.MOST_DIRECT_ROWS
        return self._tiled, exact_matrix.MOST_TILE_ROWS

    def _integers_of(self, weight: torch.Tensor, bits: Bits) -> torch.Tensor | None:
        """The packed form with integers of so many bits; None if the weight is not made of them. The first block tells it of
        most weights."""
        if weight.dtype != torch.float32 or weight.is_meta or weight.shape[1] % GROUP or not weight.is_contiguous():
            return None
        if self._packed(weight[:BLOCK], bits) is None or not self._can_multiply(bits):
            return None
        return self._packed(weight, bits)

    def _packed(self, weight: torch.Tensor, bits: Bits) -> torch.Tensor | None:
        if bits not in self._packing:
            self._packing[bits] = compile_kernel(lambda code: exact_packing.write_packing(code, bits), self.machine)
        n_out, n_in = weight.shape
        packed = exact_weights.empty(n_out, n_in, bits)
        losses = torch.ones(-(-n_out // BLOCK), dtype=torch.int32)
        addresses = (weight.data_ptr(), packed.data_ptr() + HEADER_BYTES)
        words = (losses.numel(), *addresses, n_in // GROUP, n_out, losses.data_ptr())
        self._packing[bits](words, run_units=1)
        return None if losses.any().item() else packed

    def _can_multiply(self, bits: Bits) -> bool:
        """False if LLVM refuses the kernels; the weights stay float32 then."""
        try:
            self._compile(bits)
        except RuntimeError as error:
            structlog.get_logger().warning("weights stay float32, which is slower", bits=bits, reason=str(error)[:300])
            return False
        return True

    def _compile(self, bits: Bits) -> None:
        """Compile the products now, not in the first step. Raises: RuntimeError when LLVM refuses them."""
        if self._tiled is None:
            self._tiled = compile_kernel(exact_matrix.write_tiled, self.machine)
        if bits not in self._direct:
            self._direct[bits] = compile_kernel(lambda code: exact_matrix.write_direct(code, bits), self.machine)


class DeterministicExactCpuOps(ExactCpuOps, DeterministicCpuOps):
    """`ExactCpuOps` without torch: what has no kernel is refused with a ConfigError, at the latest by the warm-up."""
