"""The operations of a layer on CPUs for which kernels can be compiled; torch computes the cases that the kernels do not cover.

Measured on one Zen 4 core beside other work, all linear layers of a step of SmolLM2-135M, ms, oneDNN against the kernel:
bfloat16 1 row 27 -> 12, 8 rows 31 -> 19, 32 rows 122 -> 84; float32 1 row 48 -> 22, 8 rows 64 -> 36, 32 rows 117 -> 91.
"""

from __future__ import annotations

import copy
import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Self

import torch

from gpu_workers.cpu.kernels import matrix, rows
from gpu_workers.cpu.kernels.calls import Calls, DirectCalls
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.kernels.pages.int4_pages import write_rope_and_pack
from gpu_workers.cpu.kernels.pages.int8_pages import write_rope_and_quantise
from gpu_workers.cpu.kernels.vector_code import float_bits
from gpu_workers.layers.cpu_linear import can_pack, packed_linear
from gpu_workers.layers.page_format import INT4
from gpu_workers.layers.torch_ops import KvTarget, TorchOps

MOST_ROWS = 64  # oneDNN is as good for more, in float32
_MOST_ROWS_WITHOUT_DOT = 6  # of bfloat16 on processors that must widen it first
_MOST_ROWS_BESIDE_TILES = 4  # of bfloat16 where oneDNN has AMX: it takes 0.7 of our kernel's time for 8 rows, 0.3 for 32
_LEAST_SHARED_PASSES = 4  # over a block of a weight; with fewer, reading the weight dominates, and sharing would read it twice
_UNITS_OF_A_THREAD = 8  # with so many, threads end at nearly the same time
# Multiplications for each output of a run. In a short call each thread has one run: at every new place in a weight it waits for
# memory. In a long one more runs let other threads do the work of one that the operating system has suspended.
_RUN_PRODUCTS = 1 << 16
_FEW_NUMBERS = 1 << 14  # fewer are computed before a second thread has started


@dataclass(frozen=True)
class PackedWeight:
    """A weight [n_out, n_in] as oneDNN packed it, in the layout that `kernels.matrix` reads."""

    packed: torch.Tensor
    address: int
    n_in: int
    n_out: int
    block: int = matrix.BLOCK  # outputs


class CpuOps(TorchOps):
    """Operations with compiled kernels. Not thread-safe."""

    def __init__(self, dtype: torch.dtype, machine: Machine, page_dtype: torch.dtype | None = None) -> None:
        """For weights and activations of `dtype`, float32 or bfloat16. page_dtype: of keys and values in pages, `dtype` (None),
        int8 or INT4. Compiles the kernels."""
        super().__init__()
        self._calls: Calls = DirectCalls()
        self.machine = machine
        self._dtype, self._lanes = dtype, machine.lanes
        is_bf16 = dtype == torch.bfloat16
        self.most_rows = most_rows(machine) if is_bf16 else MOST_ROWS  # of a product in a program
        # of a product; torch computes larger ones. In bfloat16 the kernel is as fast for any number of rows, and a token has
        # the same bits in a prompt as in a step of its own. Only oneDNN's tiles are faster (AMX).
        has_no_limit = is_bf16 and machine.has_bf16_dot and not machine.has_bf16_tiles
        self._most_kernel_rows = sys.maxsize if has_no_limit else self.most_rows
        self._pass_rows = matrix.MOST_ROWS  # that share one read of a block of the weight
        self._layouts: dict[tuple[int, ...], int | None] = {}  # by shape: the blocks' size in the layout that our kernel reads
        self._products: dict[int, Kernel] = {}  # by the blocks' size
        self._norm = compile_kernel(lambda code: rows.write_norm(code, is_bf16, has_residual=False), machine)
        self._add_norm = compile_kernel(lambda code: rows.write_norm(code, is_bf16, has_residual=True), machine)
        self._page_dtype = page_dtype or dtype
        self._ropes: dict[int, Kernel] = {}  # by head_dim, if pages are of small integers; else under 0
        if page_dtype != INT4:
            write_rope = rows.write_rope_and_store if page_dtype is None else write_rope_and_quantise
            self._ropes[0] = compile_kernel(lambda code: write_rope(code, is_bf16), machine)
        self._gate = compile_kernel(lambda code: rows.write_silu_mul(code, is_bf16), machine)
        self._take = compile_kernel(lambda code: rows.write_take_rows(code, is_bf16), machine)
        self._add_bias = compile_kernel(lambda code: rows.write_add_bias(code, is_bf16), machine)
        self._argmax = compile_kernel(lambda code: rows.write_argmax(code, is_bf16), machine)

    def product(self, block: int) -> Kernel:
        """The kernel of `matrix` for weights in blocks of so many outputs."""
        if block not in self._products:
            is_bf16 = self._dtype == torch.bfloat16
            self._products[block] = compile_kernel(lambda code: matrix.write_few_rows(code, is_bf16, block), self.machine)
        return self._products[block]

    def through(self, calls: Calls) -> Self:
        """The same operations with their kernels called through `calls`."""
        other = copy.copy(self)
        other._calls = calls
        return other

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` -> what `linear` takes: a PackedWeight if our kernel reads its layout, else `packed` itself."""
        has_wide_vectors = self.machine.lanes * 4 == matrix.BLOCK  # oneDNN packs otherwise for narrower ones
        if not packed.is_mkldnn or packed.dtype != self._dtype or not has_wide_vectors or not can_pack(self._dtype):
            return packed
        if (block := self._block_of(packed)) is None:
            return packed
        self.product(block)  # is compiled now, not in the first step
        return PackedWeight(packed, torch.ops.mkldnn.data_ptr(packed), packed.shape[1], packed.shape[0], block)

    def _block_of(self, packed: torch.Tensor) -> int | None:
        """Tries each shape once: oneDNN does not report which layout it chose."""
        shape = tuple(packed.shape)
        if shape not in self._layouts:
            self._layouts[shape] = known_block(packed.to_dense(), packed)
        return self._layouts[shape]

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, by our kernel for contiguous x of few rows, else by torch."""
        n_rows = x.shape[0]
        if not isinstance(weight, PackedWeight):
            self._calls.leave_to_torch("a weight in another layout")
            return super().linear(x, weight, bias)
        if not 0 < n_rows <= self._most_kernel_rows or not x.is_contiguous():
            self._calls.leave_to_torch("a product of many rows")
            return packed_linear(x, weight.packed, bias)
        out = self._calls.empty((n_rows, weight.n_out), x.dtype)
        cut = cut_product(n_rows, self._pass_rows, weight.n_out // weight.block, weight.n_in)
        addresses = (x.data_ptr(), weight.address, out.data_ptr())
        words = (cut.n_units, *addresses, n_rows, weight.n_in, weight.n_out, cut.pass_rows, cut.share)
        self._calls.run(self.product(weight.block), words, cut.run_units)
        return self._biased(out, bias)

    def _biased(self, out: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """out [T, n], to which bias [n] is added in place, if there is one."""
        n_rows, width = out.shape
        if bias is not None and width % self._lanes:
            self._calls.leave_to_torch("a bias whose width is no multiple of the vector")
            return out.add_(bias)
        if bias is not None:
            self._spread(self._add_bias, n_rows, width, (out.data_ptr(), bias.data_ptr(), width))
        return out

    def embed(self, token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """token_ids [T] int64, table [rows, n] -> a new [T, n], by our kernel where n is a multiple of its vectors."""
        n_rows, width = token_ids.shape[0], table.shape[1]
        if width % self._lanes or table.dtype != self._dtype:
            self._calls.leave_to_torch("an embedding whose width is no multiple of the vector")
            return super().embed(token_ids, table)
        out = self._calls.empty((n_rows, width), table.dtype)
        self._spread(self._take, n_rows, width, (table.data_ptr(), token_ids.data_ptr(), out.data_ptr(), width))
        return out

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [T, n] or [T, heads, n], weight [n] -> a new tensor of x's shape, by our kernel where n is whole vectors."""
        width = x.shape[-1]
        heads = x.shape[1] if x.dim() == 3 else 1
        is_in_order = x.dim() in (2, 3) and x.stride()[1:] == (width, 1)[-x.dim() + 1 :]
        if weight.dtype != x.dtype or width % self._lanes or not is_in_order:
            self._calls.leave_to_torch("a norm whose width is no multiple of the vector")
            return super().rms_norm(x, weight, eps)
        out = self._calls.empty(x.shape, x.dtype)
        addresses = (x.data_ptr(), weight.data_ptr(), out.data_ptr())
        bits = (float_bits(eps), float_bits(1 / width))
        self._spread(self._norm, x.shape[0] * heads, width, (*addresses, width, heads, x.stride(0), *bits))
        return out

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (a new rms_norm(x + residual), residual, which is overwritten with the sum)."""
        n_rows, width = x.shape[0], x.shape[-1]
        is_in_order = x.dim() == 2 and x.is_contiguous() and residual.is_contiguous()
        if weight.dtype != x.dtype or width % self._lanes or not is_in_order:
            self._calls.leave_to_torch("a norm whose width is no multiple of the vector")
            return super().add_rms_norm(x, residual, weight, eps)
        out = self._calls.empty(x.shape, x.dtype)
        addresses = (x.data_ptr(), weight.data_ptr(), out.data_ptr())
        words = (*addresses, width, 1, width, float_bits(eps), float_bits(1 / width), residual.data_ptr())
        self._spread(self._add_norm, n_rows, width, words)
        return out, residual

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """Rotates q and k and writes k and v to their pages; shapes as in `Ops.rope_and_store`. Returns a new q."""
        n_tokens, n_heads, head_dim = q.shape
        in_order = all(x.stride()[1:] == (head_dim, 1) for x in (q, k, v))
        least_width = (4 if self._page_dtype == INT4 else 2) * self._lanes
        if head_dim % least_width or not in_order or target.k_pages.dtype != self._page_dtype:
            self._calls.leave_to_torch("a rotation whose width is no multiple of the vector")
            return super().rope_and_store(q, k, v, target)
        out = self._calls.empty(q.shape, q.dtype)
        inputs = (q.data_ptr(), k.data_ptr(), v.data_ptr(), q.stride(0), k.stride(0), v.stride(0))
        sizes = (n_heads, k.shape[1], head_dim)
        tables = (target.positions.data_ptr(), target.cos_sin.data_ptr(), target.slot_mapping.data_ptr())
        pages = (target.k_pages.data_ptr(), target.v_pages.data_ptr(), target.k_pages.stride(0))
        words = (*inputs, *sizes, *tables, *pages, out.data_ptr())
        self._spread(self._rope(head_dim), n_tokens, (n_heads + 2 * k.shape[1]) * head_dim, words)
        return out

    def _rope(self, head_dim: int) -> Kernel:
        """The kernel that stores heads of this size. That of small integers is compiled when the first one comes."""
        if self._page_dtype != INT4:
            return self._ropes[0]
        if head_dim not in self._ropes:
            is_bf16 = self._dtype == torch.bfloat16
            write = write_rope_and_pack
            self._ropes[head_dim] = compile_kernel(lambda code: write(code, is_bf16, head_dim), self.machine)
        return self._ropes[head_dim]

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> a new [T, n], by our kernel where n is a multiple of its vectors."""
        n = gate_up.shape[1] // 2
        if n % self._lanes or not gate_up.is_contiguous():
            self._calls.leave_to_torch("a gate whose width is no multiple of the vector")
            return super().silu_mul(gate_up)
        out = self._calls.empty((gate_up.shape[0], n), gate_up.dtype)
        self._spread(self._gate, gate_up.shape[0], 2 * n, (gate_up.data_ptr(), out.data_ptr(), n))
        return out

    def gelu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> a new [T, n], by torch."""
        self._calls.leave_to_torch("a gate with GELU")
        return super().gelu_mul(gate_up)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [S, n] of this dtype, n whole vectors -> [S] int64: the lowest of the ids with the greatest logit."""
        n_rows, width = logits.shape
        if width % self._lanes or not logits.is_contiguous() or logits.dtype != self._dtype:
            self._calls.leave_to_torch("a choice among a number of logits that is no multiple of the vector")
            return logits.argmax(-1)
        out = self._calls.empty((n_rows,), torch.int64)
        self._spread(self._argmax, n_rows, width, (logits.data_ptr(), out.data_ptr(), width))
        return out

    def _spread(self, kernel: Kernel, n_rows: int, width: int, words: tuple[int, ...]) -> None:
        """Calls a kernel over n_rows rows, by all threads where there is enough work."""
        run_units = _share_of(n_rows) if n_rows * width >= _FEW_NUMBERS else n_rows
        self._calls.run(kernel, (n_rows, *words), run_units)


@dataclass(frozen=True)
class ProductCut:
    """How threads share a product. A unit is some passes over one block of outputs."""

    n_units: int
    pass_rows: int  # rows of a pass
    share: int  # rows of a unit
    run_units: int  # that a thread draws at once


def cut_product(n_rows: int, pass_rows: int, blocks: int, n_in: int) -> ProductCut:
    """How threads share a product of so many rows with blocks of outputs. pass_rows: the most that one pass of the kernel
    computes."""
    n_passes = -(-n_rows // pass_rows)
    in_pass = -(-n_rows // n_passes)  # so that all passes have about the same size
    share = in_pass * -(-n_passes // count_shares(blocks, n_passes, torch.get_num_threads()))
    n_units = blocks * -(-n_rows // share)
    in_thread = _share_of(n_units)
    runs = max(in_thread * share * n_in // _RUN_PRODUCTS, 1)  # of each thread
    return ProductCut(n_units, in_pass, share, -(-in_thread // runs))


def _share_of(n_units: int) -> int:
    """Units of one thread, if threads share them evenly."""
    return -(-n_units // torch.get_num_threads())


def count_shares(blocks: int, n_passes: int, n_threads: int) -> int:
    """The number of shares into which the passes over each block are cut, so that threads end together. Without cutting, two
    threads would compute 5 and 4 of 9 blocks."""
    if n_passes < _LEAST_SHARED_PASSES:
        return 1
    enough = -(-_UNITS_OF_A_THREAD * n_threads // blocks)
    fitting = (shares for shares in range(1, n_passes) if shares >= enough or blocks * shares % n_threads == 0)
    return next(fitting, n_passes)


def most_rows(machine: Machine) -> int:
    """Rows for which our kernel is as good as oneDNN in bfloat16."""
    if not machine.has_bf16_dot:
        return _MOST_ROWS_WITHOUT_DOT
    return _MOST_ROWS_BESIDE_TILES if machine.has_bf16_tiles else MOST_ROWS


def known_block(weight: torch.Tensor, packed: torch.Tensor) -> int | None:
    """The number of outputs in a block of weight [out, in] as oneDNN packed it; None if `kernels.matrix` cannot read that."""
    if not packed.is_mkldnn:
        return None
    n_out, n_in = weight.shape
    try:
        n_bytes, address = torch.ops.mkldnn._nbytes(packed), torch.ops.mkldnn.data_ptr(packed)
    except (AttributeError, RuntimeError):
        return None
    if n_in % matrix.together(weight.dtype) or n_bytes != weight.nbytes:
        return None
    found = torch.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype=weight.dtype)
    blocks = (block for block in matrix.BLOCKS if n_out % block == 0)
    return next((block for block in blocks if found.equal(matrix.pack(weight, block).view(-1))), None)
