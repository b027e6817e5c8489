"""Operations and attention on CUDA devices whose result for a token depends on that token alone, not on the rest of the batch.

Norms, rotation and gate are computed row by row anyway. Products and attention have kernels with a fixed order of additions
(`kernels.fixed_product`, `kernels.attention.paged_fixed`) where the fast back end chooses an order by the number of rows.
Tokens are sampled by one set of kernels, in captured steps and outside of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.batch.step_tensors import DeviceTiles, StepTensors
from gpu_workers.batch.uploads import upload_together
from gpu_workers.cuda.kernels.attention.paged_fixed import FIXED_SHAPE, most_segments, paged_fixed
from gpu_workers.cuda.kernels.attention.tiles import TileShape
from gpu_workers.cuda.kernels.fixed_product import fixed_product
from gpu_workers.cuda.kernels.fixed_shapes import ProductShape, product_shape
from gpu_workers.cuda.kernels.sampling.sample import sample_rows
from gpu_workers.cuda.ops import CudaOps, PackedLinear
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.attention import AttentionStep
from gpu_workers.layers.torch_ops import Ops
from gpu_workers.sampling.sampler import edit_logits
from messages.steps import PAGE_TOKENS

_MANY_PAIRS = 1024  # of rows and kv heads: enough programs without sharing the keys of a row


class DeterministicCudaOps(CudaOps):
    """`CudaOps` with products of one order of additions. The gate belongs to the product at every number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self._fixed: set[tuple[int, int, torch.dtype]] = set()  # rows, columns and dtype of all weights

    def linear_weight(self, packed: torch.Tensor) -> PackedLinear:
        """packed [out, in] -> the same weight, without kernels that are chosen by the number of rows."""
        self._fixed.add((*packed.shape, packed.dtype))  # pyright: ignore[reportArgumentType]
        return PackedLinear(packed, None, None, None)

    def token_counts(self, most_tokens: int) -> list[int]:
        """For each combination of cuts of all products the smallest number of tokens that launches it."""
        least: dict[tuple[ProductShape, ...], int] = {}
        for n in range(2, most_tokens + 1):
            least.setdefault(tuple(product_shape(n, *weight) for weight in sorted(self._fixed, key=str)), n)
        return list(least.values())

    def linear(self, x: torch.Tensor, weight: PackedLinear, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, with one order of additions whatever T."""
        return fixed_product(x, weight.weight, bias)

    norm_linear = Ops.norm_linear

    def norm_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: PackedLinear
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm, then one kernel for the product and its gate. Shapes as in `Ops.norm_gated`."""
        normed, residual = self.add_rms_norm(x, residual, norm_weight, eps)
        return fixed_product(normed, gate_up.weight, None, is_gated=True), residual


@dataclass(frozen=True)
class FixedStep(AttentionStep):
    """The arguments of the kernel for one step; tensors are on the device."""

    page_table: torch.Tensor  # [R, P] int32
    single: torch.Tensor  # [n_decode, TILE_FIELDS] int64: the rows of one token
    long_rows: DeviceTiles | None  # None: all rows are decode rows
    n_splits: int  # programs that share a row of one token
    shape: TileShape

    def attend(self, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, scale: float) -> torch.Tensor:
        """One launch for the rows of one token, one for the longer rows. Shapes as in `AttentionStep.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if len(self.single):
            paged_fixed(q, k_pages, v_pages, self.page_table, self.single, out, scale, self.shape, self.n_splits)
        if self.long_rows is not None:
            paged_fixed(q, k_pages, v_pages, self.long_rows.page_table, self.long_rows.tiles, out, scale, self.shape)
        return out


class DeterministicTritonAttention(TritonAttention):
    """Attention by one kernel with one order of additions."""

    def __init__(self, n_heads: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        """Head counts of this rank; dtype of q. Raises: ValueError for shapes that the kernel does not cover."""
        super().__init__(n_heads, n_kv_heads, head_dim, dtype)
        self._shape = TileShape(pairs=32, keys=32, warps=4, stages=2) if dtype == torch.float32 else FIXED_SHAPE
        if self._group > self._shape.pairs:
            raise ValueError(f"n_heads: expected at most {self._shape.pairs} on one kv head, got {self._group}")

    @property
    def tile_tokens(self) -> int:
        """Tokens of one tile of a long row."""
        return self._shape.tokens(self._group)

    def prepare(self, step: StepTensors, window: int | None = None) -> FixedStep:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The arguments of the kernel for this step. window: always None. May be called under capture if there are only decode
        rows."""
        assert window is None, "the kernels have no window"
        n = step.n_decode
        lengths = step.lengths[:n].long()
        place = torch.arange(n, device=lengths.device)
        one = torch.ones_like(place)
        single = torch.stack((place, place, one, lengths - 1, lengths, -one, one), 1)
        is_many = n * self._n_kv_heads >= _MANY_PAIRS
        n_splits = 1 if is_many else most_segments(step.page_table.shape[1] * PAGE_TOKENS)
        rows, _ = self._long_rows(step)
        return FixedStep(step.page_table, single, rows, n_splits, self._shape)


class KernelSampler:
    """Samples tokens outside of captured steps with the kernels of captured steps, so that the same logits give the same token
    in both."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        """logits [S, vocabulary] of `rows`, raw, not changed -> the sampled ids [S] int64. Reads the state's sampling table."""
        logits = edit_logits(logits.float(), rows, self._state.tokens)
        slots, positions = upload_together((rows.slots, rows.positions - 1), logits.device)
        ids = torch.empty(len(rows.slots), dtype=torch.int64, device=logits.device)
        sample_rows(logits, slots, positions, self._state, ids, advance=False)
        return ids
