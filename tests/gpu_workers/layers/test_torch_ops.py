"""The operations of a layer against their plain formulas; packed linear layers against torch's own, at any number of rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.cpu_linear import can_pack
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.torch_ops import KvTarget, TorchOps
from tests.support.depth import examples

OPS = TorchOps()


@examples(40)
@given(st.integers(0, 70), st.booleans(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_linear_at_any_number_of_rows(rows: int, has_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(size, generator=generator).to(dtype) for size in ((rows, 48), (40, 48), (40,)))
    out = OPS.linear(x, OPS.pack_linear(weight), bias if has_bias else None)
    expected = x.double() @ weight.double().T + (bias.double() if has_bias else 0.0)
    assert out.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(out.double(), expected, atol=tolerance * 4, rtol=tolerance)


def test_what_cannot_be_packed_stays_plain() -> None:
    weight = torch.randn(8, 8, dtype=torch.float64)
    assert not can_pack(torch.float64)
    assert OPS.pack_linear(weight) is weight
    torch.testing.assert_close(OPS.linear(weight, weight, None), weight @ weight.T)


@pytest.mark.parametrize("shape", [(0, 24), (1, 24), (3, 24), (40, 24), (5, 3, 24)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(shape, generator=generator).to(dtype), torch.randn(24, generator=generator).to(dtype)
    expected = (x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-5)) * weight.double()
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(OPS.rms_norm(x, weight, 1e-5).double(), expected, atol=tolerance, rtol=tolerance)
    normed, total = OPS.add_rms_norm(x.clone(), x.clone(), weight, 1e-5)
    torch.testing.assert_close(total, x + x)
    torch.testing.assert_close(normed, OPS.rms_norm(x + x, weight, 1e-5))


@pytest.mark.parametrize("is_fused", [True, False])
def test_rope_rotates_halves_and_stores(is_fused: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn((5, 6 + 2 + 2, 8), generator=generator)
    q, k, v = qkv.split((6, 2, 2), 1)
    if not is_fused:
        q, k = q.clone(), k.clone()
    positions, slots = torch.tensor([0, 7, 3, 90, 1]), torch.tensor([33, 2, 47, 16, 0])
    table = cos_sin_table(10_000.0 ** -(torch.arange(4) / 4.0), 128)
    kv = KvPages.allocate(KvShape(4, 2, 8, torch.float32), 3, "cpu")
    k_pages, v_pages = kv.keys[2], kv.values[2]
    expected_q, expected_k = (_rotated(x.clone(), positions) for x in (q, k))
    rotated = OPS.rope_and_store(q, k, v.clone(), KvTarget(positions, table, k_pages, v_pages, slots))
    assert rotated.is_contiguous()
    torch.testing.assert_close(rotated, expected_q)
    torch.testing.assert_close(k_pages.flatten(0, 1)[slots], expected_k)
    assert v_pages.flatten(0, 1)[slots].equal(v)
    assert kv.storage.any(-1).any(-1).sum() == 2 * 5


def _rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """As complex numbers: element i with element i + half."""
    angles = positions[:, None, None] * 10_000.0 ** -(torch.arange(4) / 4.0)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)


def test_gate() -> None:
    gate_up = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    gate, up = gate_up.clone().chunk(2, -1)
    torch.testing.assert_close(OPS.silu_mul(gate_up), gate * torch.sigmoid(gate) * up)
