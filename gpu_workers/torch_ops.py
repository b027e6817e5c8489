"""The small operations of a decoder layer, behind one seam: `Ops` is what a model calls, `TorchOps` runs it anywhere.

A back end is one object given to the model when it is built. Each method says which of its arguments it may overwrite.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn.functional import linear, silu

from gpu_workers.cpu_linear import can_pack, pack_weight, packed_linear


class Ops(Protocol):
    """T tokens; all activations [T, ...] of one float dtype, on the model's device, rows contiguous unless said."""

    def pack_linear(self, weight: torch.Tensor) -> Any:
        """Once at load: turns weight [out, in] into whatever `linear` of this back end is fastest with."""
        ...

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias. weight as pack_linear returned it; bias [out]."""
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [..., n], weight [n] -> a new [..., n]: x / sqrt(mean(x^2) + eps) * weight, the mean in float32.
        x may be a strided view (rows contiguous)."""
        ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (rms_norm(x + residual), x + residual). May overwrite x and residual."""
        ...

    def rope_and_store(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        kv_slots: torch.Tensor,
    ) -> torch.Tensor:
        """Rotates q and k, writes k and v to their KV slots, returns the rotated q [T, n_heads, head_dim], contiguous.

        q [T, n_heads, head_dim], k and v [T, n_kv_heads, head_dim]: views of one fused [T, (n_heads + 2 n_kv_heads) *
        head_dim] where the model has no q/k norm, so strided over T; may be overwritten. positions, kv_slots [T] int64.
        cos_sin [max_position, head_dim] float32: the cosines of the head_dim / 2 angles, then their sines. Halves are
        rotated: (a, b) -> (a cos - b sin, b cos + a sin), computed in float32. k_pages and v_pages [n_pages, PAGE_TOKENS,
        n_kv_heads, head_dim], contiguous.
        """
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> [T, n]: silu(first half) * second half. May overwrite gate_up."""
        ...


class TorchOps:
    """Plain torch: the reference, and what CPUs run."""

    def pack_linear(self, weight: torch.Tensor) -> torch.Tensor:
        """See Ops."""
        return pack_weight(weight) if weight.device.type == "cpu" and can_pack(weight.dtype) else weight

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See Ops."""
        return packed_linear(x, weight, bias) if weight.is_mkldnn else linear(x, weight, bias)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See Ops."""
        return torch.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops."""
        residual = residual.add_(x)
        return self.rms_norm(residual, weight, eps), residual

    def rope_and_store(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        kv_slots: torch.Tensor,
    ) -> torch.Tensor:
        """See Ops."""
        cos, sin = cos_sin.index_select(0, positions)[:, None].chunk(2, -1)  # [T, 1, head_dim / 2] each
        k_pages.flatten(0, 1).index_copy_(0, kv_slots, rotate_halves(k, cos, sin).to(k_pages.dtype))
        v_pages.flatten(0, 1).index_copy_(0, kv_slots, v.to(v_pages.dtype))
        return rotate_halves(q, cos, sin)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See Ops."""
        gate, up = gate_up.chunk(2, -1)
        return silu(gate).mul_(up)


def rotate_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads, head_dim] in any float dtype; cos, sin [T, 1, head_dim / 2] float32. Returns a new tensor like x."""
    first, second = x.float().chunk(2, -1)
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    half = first.shape[-1]
    torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out[..., half:]).addcmul_(first, sin)
    return out.to(x.dtype)


def cos_sin_table(inverse_frequencies: torch.Tensor, max_position: int) -> torch.Tensor:
    """inverse_frequencies [head_dim / 2] float32 -> [max_position, head_dim] float32 on its device; see rope_and_store."""
    positions = torch.arange(max_position, dtype=torch.float32, device=inverse_frequencies.device)
    angles = positions[:, None] * inverse_frequencies
    return torch.cat((angles.cos(), angles.sin()), -1)
