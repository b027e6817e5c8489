"""The operations of a decoder layer: `Ops` is what a model calls, `TorchOps` computes it on any device.

A model gets one back end when it is built. Each method says which of its arguments it may overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import embedding, gelu, linear, silu

from gpu_workers.layers.cpu_linear import pack_weight, packed_linear, packs_weights
from gpu_workers.layers.page_format import format_of
from gpu_workers.layers.quantized.stored_weight import StoredWeight

_FEW_ROWS = 4  # up to so many, the layer norm of (x, -x) is faster on a CPU


@dataclass(frozen=True)
class KvTarget:
    """The positions of the T tokens of a step, and where one layer keeps their keys and values. All on the model's device."""

    positions: torch.Tensor  # [T] int64
    cos_sin: torch.Tensor  # [max_position, head_dim] float32: cosines of the head_dim / 2 angles, then their sines
    k_pages: torch.Tensor  # [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], each page contiguous, pages at any stride
    v_pages: torch.Tensor  # the same, at the same stride
    slot_mapping: torch.Tensor  # [T] int64


class Ops(Protocol):
    """The operations of a layer on T tokens. All activations are [T, ...] of one float dtype on the model's device, with
    contiguous rows unless said otherwise. Operations that are made of others have a body here; a back end overrides those
    that it computes faster in one kernel."""

    takes_stored = False  # `pack_stored` may give something

    def pack_linear(self, weight: torch.Tensor) -> Any:
        """weight [out, in], of the model's dtype on its device -> the form with which `linear` of this back end is fastest."""
        return self.linear_weight(self.pack(weight))

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """The first half of `pack_linear`: the weight's numbers, in the order in which this back end reads them. A new tensor,
        or the weight itself."""
        return weight

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        """As `pack`, for the weight that makes logits."""
        return self.pack(weight)

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        """As `pack`, for a weight of a quantised checkpoint whose numbers and scales this back end multiplies with as they
        are. None: it has no product for them, and packs the floats that they stand for."""
        return None

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """The second half: what `linear` takes. packed: from `pack` or `pack_head`, which another process
        may have called."""
        return packed

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias. weight as pack_linear returned it; bias [out]."""
        ...

    def embed(self, token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """token_ids [T] int64, table [rows, n] -> a new [T, n]: the rows of these numbers."""
        return embedding(token_ids, table)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [..., n], weight [n] -> a new [..., n]: x / sqrt(mean(x^2) + eps) * weight, the mean in float32.
        x may be a strided view (rows contiguous). weight has the dtype of x, or float32."""
        ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (rms_norm(x + residual), x + residual). May overwrite x and residual."""
        ...

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """Rotates q and k, writes k and v to their pages, returns the rotated q [T, n_heads, head_dim], contiguous.

        q [T, n_heads, head_dim], k and v [T, n_kv_heads, head_dim]: views of one fused [T, (n_heads + 2 n_kv_heads) *
        head_dim] where the model has no q/k norm, so strided over T; may be overwritten. Halves are rotated: (a, b) ->
        (a cos - b sin, b cos + a sin), computed in float32.
        """
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> [T, n]: silu(first half) * second half. May overwrite gate_up."""
        ...

    def token_counts(self, most_tokens: int) -> list[int]:
        """Numbers of tokens, 2 to most_tokens, which together launch all kernels that any of these numbers does; empty if
        kernels do not depend on it. Ask after all weights are packed."""
        return []

    def gelu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> a new [T, n]: gelu(first half), in its tanh form, * second half."""
        gate, up = gate_up.chunk(2, -1)
        return gelu(gate, approximate="tanh").mul_(up)

    def norm_linear(
        self,
        x: torch.Tensor | None,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        eps: float,
        weight: Any,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (linear(rms_norm(x + residual)) [T, out], x + residual); x is None before the first layer.
        May overwrite x and residual."""
        if x is None:
            return self.linear(self.rms_norm(residual, norm_weight, eps), weight, bias), residual
        normed, residual = self.add_rms_norm(x, residual, norm_weight, eps)
        return self.linear(normed, weight, bias), residual

    def norm_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (silu_mul(linear(rms_norm(x + residual))), x + residual). May overwrite both."""
        projected, residual = self.norm_linear(x, residual, norm_weight, eps, gate_up, None)
        return self.silu_mul(projected), residual

    def feed_forward(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: Any, down: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (linear(norm_gated, down) [T, n], x + residual). May overwrite both."""
        gated, residual = self.norm_gated(x, residual, norm_weight, eps, gate_up)
        return self.linear(gated, down, None), residual


class TorchOps(Ops):
    """Plain torch: the reference of tests, and the back end where there are no kernels."""

    def __init__(self) -> None:
        self._rotations: dict[
            int, tuple[torch.Tensor, torch.Tensor]
        ] = {}  # by id of the table: the table, so that the id stays its own, and its widened form

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> a copy that is packed for oneDNN, on CPUs that can; else the weight itself."""
        return pack_weight(weight) if packs_weights(weight.device, weight.dtype) else weight

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias. weight: from `pack`; bias [out] or None."""
        return packed_linear(x, weight, bias) if weight.is_mkldnn else linear(x, weight, bias)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [..., n], weight [n] -> a new [..., n] in the dtype of x; computed in float32 where weight has another dtype."""
        if weight.dtype != x.dtype:
            return torch.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)
        if x.dim() == 2 and x.shape[0] <= _FEW_ROWS and x.device.type == "cpu":
            return _norm_few_rows(x, weight, eps)
        return torch.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (rms_norm(x + residual), residual, which is overwritten with the sum)."""
        residual = residual.add_(x)
        return self.rms_norm(residual, weight, eps), residual

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """Rotates q and k and writes k and v to their pages; shapes as in `Ops.rope_and_store`."""
        cos, sin = self._rotations_of(target.cos_sin).index_select(0, target.positions).unbind(1)  # [T, 1, head_dim] each
        joined = _joined(q, k)
        if joined is None:
            q, k = rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)
        else:
            q, k = rotate_halves(joined, cos, sin).split((q.shape[1], k.shape[1]), 1)
        format_of(target.k_pages.dtype).store(target.k_pages, target.v_pages, target.slot_mapping, k, v)
        return q.contiguous()

    def _rotations_of(self, cos_sin: torch.Tensor) -> torch.Tensor:
        """`cos_sin` in the form of `_widen`, computed once for each table; a model has one table or two."""
        found = self._rotations.get(id(cos_sin))
        if found is None:
            found = self._rotations[id(cos_sin)] = (cos_sin, _widen(cos_sin))
        return found[1]

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> a new [T, n]: silu(first half) * second half."""
        gate, up = gate_up.chunk(2, -1)
        return silu(gate).mul_(up)


def _norm_few_rows(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """(x, -x) has mean 0 and variance mean(x^2), so its layer norm is the RMS norm of x, in fewer calls."""
    both = torch.cat((x, x.neg()), -1)
    return torch.layer_norm(both, both.shape[-1:], None, None, eps)[:, : x.shape[1]] * weight


def rotate_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads, head_dim] in any float dtype; cos, sin [T, 1, head_dim] float32 as in `_widen`. Returns a new
    tensor of the shape and dtype of x."""
    wide = x.float()
    return torch.addcmul(wide * cos, wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


def _widen(cos_sin: torch.Tensor) -> torch.Tensor:
    """[max_position, head_dim] -> [max_position, 2, 1, head_dim]: cosines of both halves; sines, negative in the first."""
    cos, sin = cos_sin.chunk(2, -1)
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)[:, :, None]


def _joined(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """q and k as one view, if k's heads follow q's in memory, which halves the calls; else None."""
    if k.stride() != q.stride() or k.data_ptr() != q.data_ptr() + q.shape[1] * q.stride(1) * q.element_size():
        return None
    if k.untyped_storage().data_ptr() != q.untyped_storage().data_ptr():
        return None
    return q.as_strided((q.shape[0], q.shape[1] + k.shape[1], q.shape[2]), q.stride())
