"""Attention over pages: the interface of all back ends, and the torch one, which runs anywhere and is the reference of tests.

`Attention.prepare` does the index and mask work of a step once; what it returns, an `AttentionStep`, then attends in each
layer. Keys and values of the step's tokens are in their pages before `attend` is called for the layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu_workers.batch.step_gate import StepGate
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.page_format import format_of
from gpu_workers.layers.torch_ops import KvTarget, Ops
from messages.steps import PAGE_TOKENS

MAX_BATCHED_COUNT = 16  # rows of at most so many tokens share one call; a longer row gets its own call
MAX_PADDED_SHARE = 1.5  # keys read in a shared call over keys needed
MIN_WASTED_KEYS = 256  # below it a further call costs more than the padding
_FEW_VECTORS = 1024  # below it the start of a bfloat16 product costs more than its computation


class AttentionStep(Protocol):
    """Attention of one step, prepared by a back end; the same object serves all layers."""

    def attend(self, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, scale: float) -> torch.Tensor:
        """Causal attention of each token over the keys of its row up to its own position, within the window if there is one.

        q [T, n_heads, head_dim]; k_pages, v_pages [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], of one layer: each page
        contiguous, pages at one stride for both, in the format of their dtype; all on the model's device; scale multiplies q.k.
        Returns [T, n_heads, head_dim], contiguous, dtype of q. Head h reads kv head h // (n_heads / n_kv_heads)."""
        ...

    def store_and_attend(
        self, ops: Ops, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget, scale: float
    ) -> torch.Tensor:
        """Rotates q and k, writes k and v to their pages and attends: `ops.rope_and_store`, then `attend`. Arguments as there.
        A back end may do all of it in one kernel."""
        q = ops.rope_and_store(q, k, v, target)
        return self.attend(q, target.k_pages, target.v_pages, scale)


class Attention(Protocol):
    """An attention back end. One object serves all steps of a rank. `gate`: its steps pass it, where the back end can do so."""

    gate: StepGate | None = None

    def prepare(self, step: StepTensors, window: int | None = None) -> AttentionStep:
        """Prepares attention over the rows of this step, from their sizes on the host and their page table on the device.

        window: the number of tokens that a token attends to, itself included; None: itself and all before it."""
        ...

    def decode_row_counts(self, most_rows: int) -> list[int]:
        """Numbers of rows of one token, 1 to most_rows, which together launch all kernels that any of these numbers does, in
        steps with longer rows. One number is enough if kernels do not depend on it."""
        return [1] if most_rows > 0 else []


@dataclass(frozen=True)
class RowGroup:
    """Rows of `count` tokens each that attend in one call, or one long row alone."""

    tokens: torch.Tensor | slice  # flat tokens of the rows, [rows * count]
    count: int
    rows: int
    n_keys: int  # keys of the longest row, rounded up to whole pages unless it is alone
    pages: torch.Tensor  # [rows * n_kv_heads * n_keys] int64: the page of each vector of head_dim numbers, in this order
    places: torch.Tensor  # the same size: which vector of its page it is
    mask: torch.Tensor  # additive, see `_mask`
    is_alone: bool


@dataclass(frozen=True)
class TorchStep(AttentionStep):
    """The groups of a step; each token is in exactly one."""

    groups: tuple[RowGroup, ...]

    def attend(self, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, scale: float) -> torch.Tensor:
        """One call for each group of rows. Shapes as in `AttentionStep.attend`."""
        if len(self.groups) == 1:
            return attend_group(q, k_pages, v_pages, self.groups[0], scale)  # it holds all tokens, in order
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for group in self.groups:
            out[group.tokens] = attend_group(q[group.tokens], k_pages, v_pages, group, scale)
        return out


class TorchAttention(Attention):
    """Gathers keys and values by head, then multiplies batches of them; any device, any float dtype.

    On CPUs this is 1.3 to 1.9 times as fast for rows of one token as torch's scaled_dot_product_attention over gathered
    pages; that one serves long rows."""

    def __init__(self, dtype: torch.dtype, shared_heads: int, n_kv_heads: int) -> None:
        """dtype of q; shared_heads: query heads on one kv head."""
        self._dtype = dtype
        self._shared_heads = shared_heads
        self._n_kv_heads = n_kv_heads

    def prepare(self, step: StepTensors, window: int | None = None) -> TorchStep:
        """Groups rows of equal count and similar length. Arguments as in `Attention.prepare`."""
        if window is not None:
            step = without_unseen_pages(step, window)
        ends = step.row_starts.astype(np.int64) + step.row_counts
        batches = group_rows(step.row_counts, ends)
        return TorchStep(tuple(self.group(step, rows, ends, window) for rows in batches))

    def group(self, step: StepTensors, rows: np.ndarray, ends: np.ndarray, window: int | None = None) -> RowGroup:
        """The group of these rows, which have equal counts. rows: [n] int64; ends: [R] int64, start + count of every row."""
        device = step.token_ids.device
        count, n_keys = int(step.row_counts[rows[0]]), int(ends[rows].max())
        is_alone = len(rows) == 1 and count > MAX_BATCHED_COUNT
        if not is_alone:  # whole pages: oneDNN compiles a product for each new shape
            n_keys = -(-n_keys // PAGE_TOKENS) * PAGE_TOKENS
        first = int(step.row_offsets[rows[0]])
        tokens: torch.Tensor | slice = slice(first, first + count * len(rows))
        table = step.page_table[int(rows[0]) : int(rows[-1]) + 1]
        if len(rows) != rows[-1] - rows[0] + 1:
            tokens = _int64s((step.row_offsets[rows][:, None] + np.arange(count)).reshape(-1), device)
            table = step.page_table[_int64s(rows, device)]
        pages, places = self._vectors(table, n_keys)
        mask = self._mask(step, rows, n_keys, window, is_alone)
        return RowGroup(tokens, count, len(rows), n_keys, pages, places, mask, is_alone)

    def _vectors(self, table: torch.Tensor, n_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`RowGroup.pages` and `RowGroup.places` of rows whose page table is [rows, P]."""
        keys = torch.arange(n_keys, device=table.device)
        heads = torch.arange(self._n_kv_heads, device=table.device)[:, None]
        pages = table[:, None, : -(-n_keys // PAGE_TOKENS)].to(torch.int64).repeat_interleave(PAGE_TOKENS, 2)[:, :, :n_keys]
        places = keys % PAGE_TOKENS * self._n_kv_heads + heads
        sizes = (table.shape[0], self._n_kv_heads, n_keys)
        return pages.expand(sizes).reshape(-1), places.expand(sizes).reshape(-1)

    def _mask(self, step: StepTensors, rows: np.ndarray, n_keys: int, window: int | None, is_alone: bool) -> torch.Tensor:
        """[count, n_keys] of a row alone (empty if merely causal), else [rows * n_kv_heads, shared_heads * count, n_keys]."""
        device, count = step.token_ids.device, int(step.row_counts[rows[0]])
        if is_alone and step.row_starts[rows[0]] == 0 and (window is None or count <= window):
            return torch.empty(0, dtype=self._dtype, device=device)
        last_keys = _int64s(step.row_starts[rows][:, None] + np.arange(count), device)  # [rows, count]
        keys = torch.arange(n_keys, device=device)
        hidden_keys = keys > last_keys[:, :, None]
        if window is not None:
            hidden_keys |= keys <= last_keys[:, :, None] - window
        mask = torch.zeros(hidden_keys.shape, dtype=self._dtype, device=device).masked_fill_(hidden_keys, float("-inf"))
        if is_alone:
            return mask[0]
        sizes = (len(rows), self._n_kv_heads, self._shared_heads, count, n_keys)
        return mask[:, None, None].expand(sizes).reshape(sizes[0] * sizes[1], -1, n_keys)


def without_unseen_pages(step: StepTensors, window: int) -> StepTensors:
    """The step without the pages at the front of each row that are outside the window of all its tokens. Masks depend on
    distances alone, so they stay right. Only the fields that `TorchAttention` reads are changed."""
    starts = step.row_starts.astype(np.int64)
    unseen = np.maximum(starts - window + 1, 0) // PAGE_TOKENS  # [R] pages
    if not unseen.any():
        return step
    n_pages = int((-(-(starts + step.row_counts) // PAGE_TOKENS) - unseen).max())
    last = step.page_table.shape[1] - 1
    columns = np.minimum(unseen[:, None] + np.arange(n_pages), last)  # entries after a row's end may be any valid page
    table = step.page_table.gather(1, _int64s(columns, step.page_table.device))
    return replace(step, page_table=table, row_starts=(starts - unseen * PAGE_TOKENS).astype(np.int32))


def group_rows(counts: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """The groups of rows that attend in one call: equal counts and little padding. counts, ends: [R] int.

    Returns ascending row indices for each group; each row is in one group."""
    groups: list[np.ndarray] = []
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        if count > MAX_BATCHED_COUNT:
            groups.extend(np.array([row]) for row in rows)
        else:
            groups.extend(_split_by_length(rows, ends))
    return groups


def _split_by_length(rows: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    rows = rows[np.argsort(ends[rows], kind="stable")[::-1]]  # longest first
    groups: list[np.ndarray] = []
    while len(rows):
        lengths = ends[rows]
        padded = lengths[0] * np.arange(1, len(rows) + 1)
        needed = np.cumsum(lengths)
        fits = (padded <= MAX_PADDED_SHARE * needed) | (padded - needed <= MIN_WASTED_KEYS)
        taken = len(rows) if fits.all() else max(1, int(np.argmin(fits)))
        groups.append(np.sort(rows[:taken]))
        rows = rows[taken:]
    return groups


def attend_group(q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, group: RowGroup, scale: float) -> torch.Tensor:
    """Attention of the tokens of one group: q [rows * count, n_heads, head_dim] -> the same shape, contiguous. Pages and scale
    as in `AttentionStep.attend`."""
    n_heads, head_dim = q.shape[1:]
    n_kv_heads = k_pages.shape[2]
    read = format_of(k_pages.dtype).gather(k_pages, v_pages, group.pages, group.places, q.dtype)
    keys, values = (vectors.view(-1, group.n_keys, head_dim) for vectors in read)
    if group.is_alone:
        return _attend_alone(q, keys, values, group.mask, scale)
    # The heads that share keys stand as queries of one head, so that no key is read twice.
    queries = q.view(group.rows, group.count, n_kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
    queries = queries.reshape(group.rows * n_kv_heads, -1, head_dim)
    if q.dtype != torch.float32 and len(group.pages) < _FEW_VECTORS:
        out = scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=group.mask[None], scale=scale)
    else:
        scores = torch.baddbmm(group.mask, queries, keys.transpose(1, 2), alpha=scale)
        out = torch.bmm(torch.softmax(scores, -1), values)
    out = out.view(group.rows, n_kv_heads, -1, group.count, head_dim).permute(0, 3, 1, 2, 4)
    return out.reshape(-1, n_heads, head_dim).contiguous()


def _attend_alone(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """One row: q [count, n_heads, head_dim]; keys, values [n_kv_heads, n_keys, head_dim]. Returns the shape of q.
    The kv heads are the batch, and keys are broadcast over their heads without a copy."""
    q = q.view(q.shape[0], keys.shape[0], -1, q.shape[2]).permute(1, 2, 0, 3)
    keys = keys[:, None].expand(-1, q.shape[1], -1, -1)
    values = values[:, None].expand(-1, q.shape[1], -1, -1)
    is_causal = mask.numel() == 0
    mask_or_none = None if is_causal else mask
    out = scaled_dot_product_attention(q, keys, values, attn_mask=mask_or_none, is_causal=is_causal, scale=scale)
    return out.permute(2, 0, 1, 3).flatten(1, 2).contiguous()


def _int64s(values: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)
