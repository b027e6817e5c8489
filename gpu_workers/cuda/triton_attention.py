"""Attention over pages on CUDA devices: our Triton kernels behind the interface of attention.py.

Rows of one token take the decode kernel, whose launch depends on nothing but the number of rows and so can be captured in a
graph; longer rows take the prefill kernel over tiles that `prepare` lists on the host, or that a captured step finds on the
device. Of pages with 8-bit numbers the keys of long chunks are widened first, see `kernels.attention.widened_keys`. Where
FlashAttention 3 is installed, it takes the rows of many tokens in steps that are not captured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gpu_workers.batch.step_gate import StepGate
from gpu_workers.batch.step_tensors import DeviceTiles, StepTensors
from gpu_workers.batch.uploads import upload
from gpu_workers.cuda.capability import HEAD_DIMS
from gpu_workers.cuda.flash_attention import FlashRows, flash_prefill, flash_rows
from gpu_workers.cuda.kernels.attention.decode_parts import DecodeShape, kernels_of
from gpu_workers.cuda.kernels.attention.early_decode import early_decode
from gpu_workers.cuda.kernels.attention.paged_decode import NewKeys, paged_decode
from gpu_workers.cuda.kernels.attention.paged_prefill import paged_prefill, widened_prefill
from gpu_workers.cuda.kernels.attention.split_prefill import prefill_splits, split_prefill
from gpu_workers.cuda.kernels.attention.tiles import LEAST_WIDENED_TOKENS, TileShape, list_tiles
from gpu_workers.cuda.kernels.attention.widened_keys import widen_keys
from gpu_workers.cuda.kernels.gate import wait_at_gate
from gpu_workers.cuda.kernels.launch import EARLY_HEAD_DIM
from gpu_workers.layers.attention import Attention, AttentionStep
from gpu_workers.layers.page_format import FP8, INT4
from gpu_workers.layers.torch_ops import KvTarget, Ops

_GATE_LAYERS = 4
_MAX_SPLITS = 32
_PROGRAMS = 512  # of decode attention: about four for each multiprocessor of an H200
_MANY_PAIRS = 128  # of rows and kv heads: enough programs without splits, which then only shorten the wait for long rows
_MANY_SPLITS, _MANY_PROGRAMS = 8, 3072
_WIDE_HEAD, _LEAST_JOINING_PAIRS = 128, 16  # from here on a second kernel costs more than a join by the last program of a row
_LEAST_KEYS = 64  # of one part of a row
_FP8_SPLITS, _FP8_PROGRAMS = 4, 1536  # of pages of 8-bit floats, with many pairs
_SMALL_PAIRS, _SMALL_PROGRAMS, _SMALL_SPLITS = 64, 1024, 16  # of pages of 4 and 5 bits; fewer pairs are cut as usual


class GateTurns:
    """The gates of one step: one in so many layers. The urgent step waits for that many at most."""

    def __init__(self, gate: StepGate) -> None:
        self._gate, self._n_layers = gate, 0

    def next_layer(self) -> None:
        """The step has come to the attention of its next layer."""
        self._n_layers += 1
        if self._n_layers % _GATE_LAYERS == 0:
            wait_at_gate(self._gate.closed, self._gate.looks)


@dataclass(frozen=True)
class TritonStep(AttentionStep):
    """The arguments of the kernels for one step; tensors are on the device."""

    page_table: torch.Tensor  # [R, P] int32
    lengths: torch.Tensor  # [R] int32
    n_decode: int
    decode: DecodeShape
    long_rows: DeviceTiles | None  # None: all rows are decode rows
    prefill: TileShape
    is_early: bool = False  # new keys by `early_decode`
    widened: torch.Tensor | None = None  # see `kernels.attention.widened_keys`
    gates: GateTurns | None = None
    flash: FlashRows | None = None  # those whose keys are widened; None: our kernel computes them
    prefill_splits: int = 1  # programs that share the keys of a tile of long rows; more than 1 only without decode rows

    def attend(self, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, scale: float) -> torch.Tensor:
        """One kernel for the decode rows, one for the longer rows, and two for those whose keys are widened. Shapes as in
        `AttentionStep.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        n = self.n_decode
        if n:
            paged_decode(q[:n], k_pages, v_pages, self.page_table[:n], self.lengths, out[:n], scale, self.decode)
        rows = self.long_rows
        if rows is not None and rows.may_widen and self.widened is not None:
            tile_tokens = self.prefill.tokens(q.shape[1] // k_pages.shape[2])
            widen_keys(k_pages, v_pages, rows.page_table, rows.tiles, self.widened, tile_tokens)
            if self.flash is not None:
                flash_prefill(q, self.widened, self.flash, out, scale)
            else:
                widened_prefill(q, self.widened, rows.tiles, out, scale, self.prefill)
        if rows is not None and rows.may_read_pages:
            where = (q, k_pages, v_pages, rows.page_table, rows.tiles, out, scale, self.prefill)
            if self.prefill_splits > 1 and k_pages.dtype == q.dtype:
                split_prefill(*where, self.prefill_splits)
            else:
                paged_prefill(*where)
        return out

    def store_and_attend(
        self, ops: Ops, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget, scale: float
    ) -> torch.Tensor:
        """One kernel for all of it where there are only decode rows, and few; otherwise `rope_and_store`, then `attend`.
        Arguments as in `AttentionStep.store_and_attend`."""
        if self.gates is not None:
            self.gates.next_layer()
        if self.long_rows is not None or q.shape[0] != self.n_decode or not 0 < q.shape[0] * k.shape[1] < _MANY_PAIRS:
            return super().store_and_attend(ops, q, k, v, target, scale)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        new = NewKeys(k, v, target.cos_sin)
        if self.is_early:
            early_decode(q, new, target.k_pages, target.v_pages, self.page_table, self.lengths, out, scale, self.decode)
            return out
        paged_decode(q, target.k_pages, target.v_pages, self.page_table, self.lengths, out, scale, self.decode, new)
        return out


class TritonAttention(Attention):
    """The CUDA back end of `Attention`."""

    def __init__(
        self,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        *,
        follows_late: bool = False,
        widened: torch.Tensor | None = None,
        page_dtype: torch.dtype | None = None,
        flash: bool = False,
    ) -> None:
        """Head counts of this rank; dtype of q. follows_late: the kernels in front of attention are late, see `kernels.launch`.
        widened: memory for keys of 8-bit pages, see `kernels.attention.widened_keys`; None: they are widened as they are read.
        page_dtype: of keys and values; None: that of q. flash: FlashAttention 3 is loaded, and `widened` is there for it.
        Raises ValueError for shapes that the kernels do not cover."""
        if head_dim not in HEAD_DIMS:
            raise ValueError(f"head_dim: expected one of {HEAD_DIMS}, got {head_dim}")
        if n_heads % n_kv_heads:
            raise ValueError(f"n_kv_heads: expected a divisor of {n_heads} heads, got {n_kv_heads}")
        self._n_kv_heads, self._head_dim = n_kv_heads, head_dim
        self._group = n_heads // n_kv_heads
        self._dtype = dtype
        self._is_early = follows_late and head_dim <= EARLY_HEAD_DIM
        self._prefill = prefill_shape(head_dim, dtype)
        self._widened, self._page_dtype, self._is_flash = widened, page_dtype, flash

    @property
    def tile_tokens(self) -> int:
        """Tokens of one tile of prefill attention."""
        return self._prefill.tokens(self._group)

    @property
    def widened_room(self) -> int:
        """Keys that can be widened in a captured step; see `list_tiles`. Keys for FlashAttention alone are not."""
        return 0 if self._widened is None or self._is_only_flash else self._widened.shape[2]

    @property
    def _is_only_flash(self) -> bool:
        return self._is_flash and self._page_dtype is None

    def prepare(self, step: StepTensors, window: int | None = None) -> TritonStep:
        """The arguments of the kernels for this step. window: always None, see `why_not_triton`. Reads row_* only for rows
        after the decode rows; may be called under capture if there are only decode rows."""
        assert window is None, "the kernels have no window"
        decode = self._decode_shape(max(1, step.n_decode))
        is_early = self._is_early and step.n_rows == 1  # with more rows it is slower (measured on an H200)
        rows, flash = self._long_rows(step)
        widened = None if flash is None and self._is_only_flash else self._widened
        gates = GateTurns(self.gate) if self.gate is not None and not self.gate.is_urgent else None
        # while pages arrive, a step is of one prompt alone, which has many keys, and most often a few tokens left
        is_chunk = step.arrives and not step.n_decode
        splits = prefill_splits(step.n_tokens, self._n_kv_heads, self.tile_tokens) if is_chunk else 1
        return TritonStep(
            step.page_table, step.lengths, step.n_decode, decode, rows, self._prefill, is_early, widened, gates, flash, splits
        )  # fmt: skip

    def decode_row_counts(self, most_rows: int) -> list[int]:
        """For each set of decode kernels the smallest number of rows, 1 to most_rows, that launches it."""
        least: dict[DecodeShape, int] = {}
        for n in range(1, most_rows + 1):
            shape = self._decode_shape(n)
            least.setdefault(kernels_of(shape, n * self._n_kv_heads), n)
        return list(least.values())

    def _decode_shape(self, n_rows: int) -> DecodeShape:
        n_pairs = n_rows * self._n_kv_heads
        if self._page_dtype == INT4 and n_pairs >= _SMALL_PAIRS and self._dtype != torch.float32:
            return small_decode_shape(n_pairs)
        is_wide = self._head_dim == _WIDE_HEAD and self._dtype != torch.float32
        if self._page_dtype == FP8 and n_pairs > _MANY_PAIRS and is_wide:
            return fp8_decode_shape(n_pairs)
        return decode_shape(n_rows, self._n_kv_heads, self._head_dim, self._dtype)

    def _long_rows(self, step: StepTensors) -> tuple[DeviceTiles | None, FlashRows | None]:
        """The tiles of the rows after the decode rows: cut here, or those that a captured step has found on the device; and
        which of these rows FlashAttention takes."""
        if step.n_decode == step.n_rows:
            may_widen = step.n_tokens - step.n_decode >= LEAST_WIDENED_TOKENS
            return step.device_tiles and replace(step.device_tiles, may_widen=may_widen), None
        rows, device = np.arange(step.n_decode, step.n_rows), step.token_ids.device
        starts, counts, offsets = (column[rows] for column in (step.row_starts, step.row_counts, step.row_offsets))
        is_flash = self._may_flash(step)
        room = self._widened.shape[2] if is_flash and self._widened is not None else self.widened_room
        cut = list_tiles(rows, starts, counts, offsets, self.tile_tokens, room)
        is_widened = cut[:, 5] >= 0
        tiles = DeviceTiles(upload(cut, device), step.page_table, bool(is_widened.any()), not is_widened.all())
        return tiles, flash_rows(cut, self.tile_tokens, device) if is_flash else None

    def _may_flash(self, step: StepTensors) -> bool:
        """False while pages arrive layer by layer, and in an urgent step: that runs beside another step, and both would have
        their keys in the same memory."""
        is_beside = self.gate is not None and self.gate.is_urgent
        return self._is_flash and not step.arrives and not (is_beside and self._is_only_flash)


def decode_shape(n_rows: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype) -> DecodeShape:
    """The shape for this number of rows: enough splits to fill the device, but no more, as each has a cost.

    The limits are measured on an H200."""
    pairs = n_rows * n_kv_heads
    is_many = pairs >= _MANY_PAIRS
    splits, limit, programs = 1, *((_MANY_SPLITS, _MANY_PROGRAMS) if is_many else (_MAX_SPLITS, _PROGRAMS))
    while splits < limit and 2 * splits * pairs <= programs:
        splits *= 2
    if not is_many:
        last_joins = head_dim >= _WIDE_HEAD and pairs >= _LEAST_JOINING_PAIRS
        shape = DecodeShape(splits, least=_LEAST_KEYS if last_joins else 0)
    elif splits > 1:
        shape = DecodeShape(splits, warps=2, least=256 if pairs <= 2 * _MANY_PAIRS else 512)
    else:
        shape = DecodeShape(splits, keys=128 if head_dim <= 128 else 64)
    return replace(shape, keys=32, stages=2) if dtype == torch.float32 else shape


def small_decode_shape(n_pairs: int) -> DecodeShape:
    """The shape for pages of 4 and 5 bits and this number of rows times kv heads, at least `_SMALL_PAIRS`.

    Unpacking takes most of the time, and programs of one warp keep most of its numbers in registers (measured on an H100)."""
    splits = 1
    while splits < _SMALL_SPLITS and 2 * splits * n_pairs <= _SMALL_PROGRAMS:
        splits *= 2
    return DecodeShape(splits, keys=32, warps=1, least=32 if splits > 1 else 0)


def fp8_decode_shape(n_pairs: int) -> DecodeShape:
    """The shape for pages of 8-bit floats, heads of `_WIDE_HEAD`, and more than `_MANY_PAIRS` pairs of rows and kv heads.

    With three stages a program asks for its next block when it has computed the one before, and waits: the page of a key is
    found in a table first, which takes a stage. Five stages read one block further ahead, for which blocks of 16-bit numbers
    have no room. Measured on an H200."""
    splits = 1
    while splits < _FP8_SPLITS and 2 * splits * n_pairs <= _FP8_PROGRAMS:
        splits *= 2
    return DecodeShape(splits, keys=128, least=256) if splits > 1 else DecodeShape(splits, keys=128, stages=5)


def prefill_shape(head_dim: int, dtype: torch.dtype) -> TileShape:
    """The shape whose tiles fit the shared memory of an H100 or H200."""
    if dtype == torch.float32:
        return TileShape(pairs=32, keys=32, warps=4, stages=2)
    return TileShape(128, keys=64, warps=8, stages=3) if head_dim <= 128 else TileShape(64, keys=32, warps=4, stages=2)
