"""Each small kernel against the torch reference on fresh random inputs. Plain functions: they also run without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState, allocate_device_state
from gpu_workers.batch.sampling_table import SAMPLING_ROW, column_index
from gpu_workers.cuda.kernels.gemv import GemvShape, gemv
from gpu_workers.cuda.kernels.sampling.sample import sample_rows
from gpu_workers.cuda.kernels.step_inputs import StepInputs, step_inputs
from gpu_workers.cuda.ops import CudaOps
from gpu_workers.layers.torch_ops import TorchOps
from gpu_workers.sampling.sampler import least_kept_sorted

Check = Callable[[torch.device, torch.dtype], None]
HEAD_SHAPES = {"llama-8b": (32, 8, 128), "smollm2": (9, 3, 64), "qwen3-0.6b": (16, 8, 128), "one-group": (16, 1, 64)}
_TOLERANCE = {torch.float32: (2e-5, 2e-5), torch.bfloat16: (3e-2, 2e-2), torch.float16: (4e-3, 4e-3)}
_PHILOX_ROUNDS, _MASK = 10, 0xFFFFFFFF


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fresh tensors are filled with NaN (integers with their largest value), so that what a kernel leaves out is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def assert_near(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Equal shapes and values that differ by rounding to `dtype` only."""
    atol, rtol = _TOLERANCE[dtype]
    torch.testing.assert_close(got.float(), expected.float(), atol=atol, rtol=rtol)


def check_rms_norm(device: torch.device, dtype: torch.dtype) -> None:
    """Rows of all widths in use, alone and as strided heads."""
    for n_tokens, n in ((1, 4096), (3, 576), (257, 1024), (2, 8192)):
        x, weight = random_tensor(device, dtype, n_tokens, n), random_tensor(device, dtype, n)
        with poisoned_memory():
            assert_near(CudaOps().rms_norm(x, weight, 1e-5), TorchOps().rms_norm(x, weight, 1e-5), dtype)
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        qkv = random_tensor(device, dtype, 5, n_heads + 2 * n_kv_heads, head_dim)
        weight = random_tensor(device, dtype, head_dim)
        for heads in qkv.split((n_heads, n_kv_heads, n_kv_heads), 1):
            with poisoned_memory():
                got = CudaOps().rms_norm(heads, weight, 1e-6)
            assert_near(got, TorchOps().rms_norm(heads, weight, 1e-6), dtype)


def check_add_rms_norm(device: torch.device, dtype: torch.dtype) -> None:
    """Both the norm and the new residual."""
    for n_tokens, n in ((1, 4096), (3, 576), (200, 1024)):
        x, residual, weight = (random_tensor(device, dtype, *shape) for shape in ((n_tokens, n), (n_tokens, n), (n,)))
        expected = TorchOps().add_rms_norm(x.clone(), residual.clone(), weight, 1e-5)
        for got, want in zip(CudaOps().add_rms_norm(x, residual, weight, 1e-5), expected, strict=True):
            assert_near(got, want, dtype)


def check_silu_mul(device: torch.device, dtype: torch.dtype) -> None:
    """Widths that are no multiple of a block, too."""
    for n_tokens, n in ((1, 14336), (3, 1536), (70, 1000)):
        gate_up = random_tensor(device, dtype, n_tokens, 2 * n)
        with poisoned_memory():
            got = CudaOps().silu_mul(gate_up)
        assert_near(got, TorchOps().silu_mul(gate_up.clone()), dtype)


def check_gemv(device: torch.device, dtype: torch.dtype) -> None:
    """One to four rows, with and without bias, K that is no multiple of the block; sums against float64."""
    for n_out, width, shape in (
        (64, 576, GemvShape(4, 1024, 4)),
        (96, 1536, GemvShape(4, 1024, 4)),
        (128, 4096, GemvShape(8, 512, 8)),
    ):
        weight, bias = random_tensor(device, dtype, n_out, width) / width**0.5, random_tensor(device, dtype, n_out)
        for n_rows in (1, 2, 3, 4):
            x = random_tensor(device, dtype, n_rows, width)
            for added in (None, bias):
                expected = x.double() @ weight.double().T + (0.0 if added is None else added.double())
                with poisoned_memory():
                    assert_near(gemv(x, weight, added, shape), expected, dtype)


def check_linear(device: torch.device, dtype: torch.dtype) -> None:
    """CudaOps.linear on both of its paths, through pack_linear."""
    ops = CudaOps()
    for n_out, width in ((960, 576), (576, 1536), (4096, 4096)):
        weight = random_tensor(device, dtype, n_out, width) / width**0.5
        for n_rows in (1, 2, 5):
            x = random_tensor(device, dtype, n_rows, width)
            assert_near(ops.linear(x, ops.pack_linear(weight), None), x.double() @ weight.double().T, dtype)


def check_few_rows(device: torch.device, dtype: torch.dtype) -> None:
    """Every cut that is used, with and without bias or gate, with columns and inputs that fill no whole tile."""
    if dtype == torch.float32 or device.type != "cuda":
        return  # these rows go to cuBLAS
    ops, plain = CudaOps(), TorchOps()
    for n_out, width in ((960, 576), (584, 1544), (4096, 2056), (6152, 1032), (40_008, 128), (40_008, 2048)):
        weight = random_tensor(device, dtype, n_out, width) / width**0.5
        norm, bias = random_tensor(device, dtype, width), random_tensor(device, dtype, n_out)
        packed = ops.pack_linear(weight)
        for n_rows in (2, 3, 16, 17, 32, 33, 64, 65, 128, 129):
            x, residual = random_tensor(device, dtype, n_rows, width), random_tensor(device, dtype, n_rows, width)
            with poisoned_memory():
                assert_near(ops.linear(x, packed, None), x.double() @ weight.double().T, dtype)
                assert_near(ops.linear(x, packed, bias), x.double() @ weight.double().T + bias.double(), dtype)
            if n_out > 10_000:
                continue  # no gate is so wide
            expected = plain.norm_gated(x.float(), residual.float(), norm.float(), 1e-5, weight.float())
            with poisoned_memory():
                got = ops.norm_gated(x.clone(), residual.clone(), norm, 1e-5, packed)
            for one, other in zip(got, expected, strict=True):
                assert_near(one, other, dtype)
        unaligned = random_tensor(device, dtype, 8, width + 1)[:, 1:]
        assert_near(ops.linear(unaligned, packed, None), unaligned.double() @ weight.double().T, dtype)


def check_norm_gemv(device: torch.device, dtype: torch.dtype) -> None:
    """Addition, norm and product of one row, gated or not, in every cut that is used; the new residual is the sum."""
    if dtype == torch.float32:
        return  # these rows go to cuBLAS
    ops, plain = CudaOps(), TorchOps()
    shapes = ((576, 960), (576, 3072), (4096, 512), (1536, 576), (704, 64))
    for width, n_out in shapes if device.type == "cuda" else ((576, 16), (1536, 16)):
        weight = random_tensor(device, dtype, n_out, width) / width**0.5
        norm, bias = random_tensor(device, dtype, width), random_tensor(device, dtype, n_out)
        residual, x = random_tensor(device, dtype, 1, width), random_tensor(device, dtype, 1, width)
        for added, offset in ((None, bias), (x, None)):
            expected = plain.norm_linear(_float(added), residual.float(), norm.float(), 1e-5, weight.float(), _float(offset))
            with poisoned_memory():
                got = ops.norm_linear(added, residual, norm, 1e-5, ops.pack_linear(weight), offset)
            for one, other in zip(got, expected, strict=True):
                assert_near(one, other, dtype)
        expected = plain.norm_gated(x.float(), residual.float(), norm.float(), 1e-5, weight.float())
        with poisoned_memory():
            got = ops.norm_gated(x, residual, norm, 1e-5, ops.pack_linear(weight))
        for one, other in zip(got, expected, strict=True):
            assert_near(one, other, dtype)


def _float(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.float()


def check_step_inputs(device: torch.device, dtype: torch.dtype) -> None:
    """Token, slot mapping, length and page row of each row; the dummy slot has length 0 and writes to the dummy page."""
    state = random_state(device, n_slots=9, max_length=5000, n_pages=300)
    slots = torch.tensor([3, 9, 0, 8, 7], device=device)
    positions = torch.tensor([4999, 0, 0, 2047, 100], device=device)
    inputs = StepInputs(
        torch.full((5,), -7, dtype=torch.int64, device=device),
        torch.full((5,), -7, dtype=torch.int64, device=device),
        torch.full((5,), -7, dtype=torch.int32, device=device),
        torch.full((4, state.pages.shape[1]), -7, dtype=torch.int32, device=device),  # the last token is no row
    )
    step_inputs(slots, positions, state, inputs)
    pages = state.pages[slots, positions // 16].long()
    assert inputs.token_ids.tolist() == state.tokens[slots, positions].tolist()
    assert inputs.slot_mapping.tolist() == (pages * 16 + positions % 16).tolist()
    assert inputs.lengths.tolist() == [5000, 0, 1, 2048, 101]
    for row, length in enumerate(inputs.lengths.tolist()[:4]):
        n_pages = -(-length // 16)
        assert torch.equal(inputs.page_table[row, :n_pages], state.pages[slots[row], :n_pages])


def check_sampling(device: torch.device, dtype: torch.dtype) -> None:
    """The rule in plain Python and float64; tokens and positions advance, the dummy stays."""
    for vocabulary in (5000, 128_256) if device.type == "cuda" else (5000,):
        state = random_state(device, n_slots=8, max_length=100, n_pages=20)
        slots = torch.tensor([3, 1, 2, 0, 5, 8, 4, 7], device=device)
        positions = torch.tensor([5, 70, 0, 98, 33, 0, 15, 20], device=device)
        before = positions.tolist()
        logits = (random_tensor(device, torch.float32, 8, vocabulary) * 3).to(dtype)
        ids = torch.full((8,), -7, dtype=torch.int64, device=device)
        logits[7, 4000] = logits[7].max()  # two equal ones, which min_p 1 leaves
        column_of(state, "top_k")[[3, 2]] = torch.tensor([40, 1], dtype=torch.int32, device=device)
        column_of(state, "min_p")[[1, 5, 7]] = torch.tensor([0.05, 0.2, 1.0], device=device)
        column_of(state, "top_p")[[1, 3, 4]] = torch.tensor([0.9, 0.5, 1e-6], device=device)
        sample_rows(logits, slots, positions, state, ids, advance=True)
        for row, slot in enumerate(slots.tolist()):
            _check_choice(logits[row].double().cpu(), state, slot, before[row] + 1, int(ids[row]))
            assert int(state.tokens[slot, before[row] + 1]) == int(ids[row])
            assert int(positions[row]) == before[row] + (slot != state.n_slots)


def _check_choice(logits: torch.Tensor, state: DeviceState, slot: int, position: int, chosen: int) -> None:
    temperature = float(column_of(state, "temperature")[slot])
    if temperature == 0.0:
        assert logits[chosen] == logits.max()
        assert chosen == int(logits.argmax())
        return
    p = torch.softmax(logits / temperature, 0)
    p = torch.where(p >= p.max() * float(column_of(state, "min_p")[slot]), p, 0.0)
    top_k, top_p = (
        np.array([int(column_of(state, "top_k")[slot])]),
        np.array([float(column_of(state, "top_p")[slot])], np.float32),
    )
    if top_k[0] or top_p[0] < 1:
        p = torch.where(p >= least_kept_sorted(p[None], top_k, top_p)[0], p, 0.0)
    assert p[chosen] > 0
    reached = (p / p.sum()).cumsum(0)
    u = (philox_word(int(column_of(state, "seed")[slot]), position) >> 8) / 2**24
    low = float(reached[chosen - 1]) if chosen else 0.0
    slack = 2e-6  # of float32 sums over the vocabulary
    assert low - slack <= u <= float(reached[chosen]) + slack, f"u {u}: chose {chosen}, which covers {low}..{reached[chosen]}"


def philox_word(seed: int, counter: int) -> int:
    """First word of Philox4x32-10 with key `seed` (64 bits) and counter (counter, 0, 0, 0)."""
    c, k = [counter & _MASK, 0, 0, 0], [seed & _MASK, (seed >> 32) & _MASK]
    for _ in range(_PHILOX_ROUNDS):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & _MASK, (a >> 32) ^ c[3] ^ k[1], a & _MASK]
        k = [(k[0] + 0x9E3779B9) & _MASK, (k[1] + 0xBB67AE85) & _MASK]
    return c[0]


def column_of(state: DeviceState, name: str) -> torch.Tensor:
    """[n_slots + 1] of the column's type: a column of `state.sampling`, to be read and written."""
    return state.sampling.view(getattr(torch, SAMPLING_ROW[name].name))[:, column_index(name)]


def random_state(device: torch.device, n_slots: int, max_length: int, n_pages: int) -> DeviceState:
    """Tables with random tokens, pages, temperatures (every fourth slot greedy) and seeds; the dummy as it must be."""
    state = allocate_device_state(n_slots, max_length, n_pages, device)
    state.tokens[:n_slots].random_(0, 1000)
    state.pages[:n_slots].random_(0, n_pages)
    column_of(state, "seed")[:n_slots].random_()
    column_of(state, "temperature")[:n_slots].uniform_(0.3, 2.0)
    column_of(state, "temperature")[0:n_slots:4] = 0.0
    return state


def random_tensor(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Normally distributed numbers, rounded to `dtype`."""
    return torch.randn(shape, device=device).to(dtype)


KERNEL_CHECKS: dict[str, Check] = {
    "rms_norm": check_rms_norm,
    "add_rms_norm": check_add_rms_norm,
    "silu_mul": check_silu_mul,
    "gemv": check_gemv,
    "few_rows": check_few_rows,
    "linear": check_linear,
    "norm_gemv": check_norm_gemv,
    "step_inputs": check_step_inputs,
    "sampling": check_sampling,
}
