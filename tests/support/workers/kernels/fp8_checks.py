"""The operations with 8-bit floating-point weights against products of the numbers that these stand for, in double precision.
Plain functions: they also run without pytest, and on a CPU by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_workers.cuda import fp8_weights
from gpu_workers.cuda.fp8_ops import Fp8CudaOps, Fp8Linear
from gpu_workers.cuda.kernels.activation import silu_mul
from gpu_workers.cuda.kernels.few_rows import ProductScales, few_rows_product
from gpu_workers.cuda.kernels.few_rows_shapes import FewRowsShape
from gpu_workers.cuda.kernels.fp8_rows import add_norm_quantise, quantise, silu_mul_quantise
from gpu_workers.layers.torch_ops import TorchOps
from tests.support.workers.kernels.kernel_checks import assert_near, poisoned_memory, random_tensor

_BF16 = torch.bfloat16


def value_of(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The float64 numbers that 8-bit ones stand for; scales broadcast."""
    return numbers.double() * scales.double()


def check_fp8_rows(device: torch.device) -> None:
    """Rounded rows, alone and after the norm, are those of the reference but for ties; rows of zeros stay zeros."""
    for n_rows, n in ((1, 576), (3, 1536), (5, 4096)):
        x, residual, weight = (random_tensor(device, _BF16, *shape) for shape in ((n_rows, n), (n_rows, n), (n,)))
        x[0] = 0
        with poisoned_memory():
            _assert_rounded(quantise(x), x.float())
        total = x.float() + residual.float()
        with poisoned_memory():
            rounded = add_norm_quantise(x, residual, weight, 1e-5)
        assert_near(residual, total, _BF16)
        gate_up = torch.cat((x, weight * x), 1)
        with poisoned_memory():
            together, apart = silu_mul_quantise(gate_up), quantise(silu_mul(gate_up))
        assert torch.equal(together[0].float(), apart[0].float())
        assert torch.equal(together[1], apart[1])
        wide = residual.float()
        _assert_rounded(rounded, wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-5) * weight.float())


def _assert_rounded(got: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor) -> None:
    """Within half of the last place of e4m3: 1/16 of a number, or of the smallest normal one."""
    numbers, scales = got
    torch.testing.assert_close(scales, fp8_weights.quantise_rows(x)[1], atol=0, rtol=1e-4)
    error = (value_of(numbers, scales) - x.double()).abs()
    is_right = error <= x.abs() / 15.9 + scales * 2**-10 * 1.01
    if x.device.type == "cpu":  # Triton's interpreter rounds subnormal numbers and those just below a power of two wrongly
        scaled = (x / scales).abs()
        is_right |= (torch.frexp(scaled).mantissa > 1 - 1 / 31) | (scaled < 2**-6)
    assert is_right.all()


def check_few_rows_product(device: torch.device) -> None:
    """Both orders of the tensor cores, with and without bias and gate, with columns and inputs that fill no whole tile."""
    for n_rows, n_out, width, is_swapped in ((2, 96, 272, True), (16, 160, 512, True), (40, 96, 272, False)):
        x, weight = random_tensor(device, _BF16, n_rows, width), random_tensor(device, _BF16, n_out, width) / width**0.5
        bias = random_tensor(device, _BF16, n_out)
        packed = fp8_weights.unpack(fp8_weights.pack(weight))
        numbers, row_scales = quantise(x)
        scales = ProductScales(row_scales, packed.scales, _BF16)
        shape = FewRowsShape(16 if is_swapped else 64, 64 if is_swapped else 32, 128, 3, is_swapped, prefetch=8)
        expected = value_of(numbers, row_scales) @ value_of(packed.numbers, packed.scales[:, None]).T
        with poisoned_memory():
            assert_near(few_rows_product(numbers, packed.numbers, None, shape, scales), expected, _BF16)
            assert_near(few_rows_product(numbers, packed.numbers, bias, shape, scales), expected + bias.double(), _BF16)
            got = few_rows_product(numbers, packed.numbers, None, shape, scales, is_gated=True)
        gate, up = expected.chunk(2, -1)
        assert_near(got, torch.nn.functional.silu(gate) * up, _BF16)


def check_fp8_layers(device: torch.device) -> None:
    """Each operation of a layer, from one row to more than any kernel of few rows takes, near what plain torch says with the
    numbers that the weight stands for."""
    ops, plain = Fp8CudaOps(), TorchOps()
    is_gpu = device.type == "cuda"
    for n_out, width in ((960, 576), (592, 1552), (4096, 4096)) if is_gpu else ((96, 160),):
        weight = random_tensor(device, _BF16, n_out, width) / width**0.5
        norm, bias = random_tensor(device, _BF16, width), random_tensor(device, _BF16, n_out)
        packed = ops.pack_linear(weight)
        stored = value_of(packed.numbers, packed.scales[:, None]).float()
        for n_rows in (1, 2, 16, 17, 33, 64, 65, 128, 129, 500) if is_gpu else (1,):
            x, residual = random_tensor(device, _BF16, n_rows, width), random_tensor(device, _BF16, n_rows, width)
            with poisoned_memory():
                _assert_close(ops.linear(x, packed, bias), x.float() @ stored.T + bias.float(), n_rows)
            for added in (None, x):
                wanted = plain.norm_linear(_float(added), residual.float(), norm.float(), 1e-5, stored, None)
                with poisoned_memory():
                    got = ops.norm_linear(_clone(added), residual.clone(), norm, 1e-5, packed, None)
                _assert_both(got, wanted, n_rows)
            wanted = plain.norm_gated(x.float(), residual.float(), norm.float(), 1e-5, stored)
            with poisoned_memory():
                _assert_both(ops.norm_gated(x.clone(), residual.clone(), norm, 1e-5, packed), wanted, n_rows)
            down = random_tensor(device, _BF16, width, n_out // 2) / n_out**0.5
            if fp8_weights.fits_fp8(*down.shape):
                _check_feed_forward(ops, x, residual, norm, packed, down)


def _check_feed_forward(
    ops: Fp8CudaOps, x: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, gate_up: Fp8Linear, down: torch.Tensor
) -> None:
    """Both products and what lies between them, near the same by plain torch; its error is that of rounding inputs twice."""
    packed, plain = ops.pack_linear(down), TorchOps()
    stored = [value_of(weight.numbers, weight.scales[:, None]).float() for weight in (gate_up, packed)]
    wanted, total = plain.feed_forward(x.float(), residual.float(), norm.float(), 1e-5, *stored)
    with poisoned_memory():
        got, kept = ops.feed_forward(x.clone(), residual.clone(), norm, 1e-5, gate_up, packed)
    error = (got.float() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert float(error) < (0.02 if len(x) == 1 else 0.1), float(error)
    assert_near(kept, total, _BF16)


def _assert_both(got: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...], n_rows: int) -> None:
    _assert_close(got[0], wanted[0], n_rows)
    assert_near(got[1], wanted[1], _BF16)


def _assert_close(got: torch.Tensor, wanted: torch.Tensor, n_rows: int) -> None:
    """One row is not rounded; for more the error is that of rounding inputs to e4m3: 2.6 % of them, root mean square."""
    error = (got.float() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert got.shape == wanted.shape
    assert float(error) < (0.01 if n_rows == 1 else 0.06), float(error)


def _float(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.float()


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


FP8_CHECKS: dict[str, Callable[[torch.device], None]] = {
    "rows": check_fp8_rows,
    "few rows": check_few_rows_product,
    "layers": check_fp8_layers,
}
