"""Pages of random keys and values in every format, what they stand for, and the kernel that stores to them; plain functions as
in kernel_checks."""

from __future__ import annotations

import torch

from gpu_workers.cuda.ops import CudaOps
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8, INT4, format_of, scales_of
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.small_integers import halves_of
from gpu_workers.layers.small_pages import KEY_LEVELS, VALUE_LEVELS
from gpu_workers.layers.torch_ops import KvTarget, TorchOps
from messages.steps import PAGE_TOKENS
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, assert_near, poisoned_memory, random_tensor


def random_pages(shape: KvShape, n_pages: int, device: torch.device) -> KvPages:
    """Pages of random keys and values in all layers, of vectors of different lengths."""
    kv = KvPages.allocate(shape, n_pages, device)
    if shape.dtype.itemsize > 1:
        kv.storage.copy_(torch.randn(kv.storage.shape, device=device))
        return kv
    sizes, slots = (PAGE_TOKENS * n_pages, shape.n_kv_heads, shape.head_dim), torch.arange(PAGE_TOKENS * n_pages, device=device)
    for pages in zip(kv.keys, kv.values, strict=True):
        lengths = torch.logspace(-2, 0.5, sizes[0], device=device)[torch.randperm(sizes[0], device=device), None, None]
        k, v = (torch.randn(sizes, device=device) for _ in range(2))
        format_of(shape.dtype).store(*pages, slots, k, v * lengths)
    return kv


def numbers_in(k_pages: torch.Tensor, v_pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the keys and values of one layer stand for, float32 [n_pages, PAGE_TOKENS, n_kv_heads, head_dim]."""
    sizes = k_pages.shape[:3]
    width = sizes[1] * sizes[2]
    vectors = torch.arange(sizes.numel(), device=k_pages.device)
    read = format_of(k_pages.dtype).gather(k_pages, v_pages, vectors // width, vectors % width, torch.float32)
    return read[0].float().view(*sizes, -1), read[1].float().view(*sizes, -1)


def computed_in(dtype: torch.dtype, page_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype whose rounding attention shows: it widens 8-bit numbers to float16."""
    return torch.float16 if page_dtype is not None and dtype == torch.float32 else dtype


def assert_pages_near(got: KvPages, wanted: KvPages, dtype: torch.dtype) -> None:
    """Equal pages but for rounding: 8-bit numbers that differ are neighbours, and few differ. Among the scales of a vector of
    floats two may be as good as each other; then what it stands for is nearly the same. dtype: of the model."""
    if got.shape.dtype.itemsize > 1:
        return assert_near(got.storage, wanted.storage, dtype)
    if got.shape.dtype == INT4:
        return _assert_small_pages_near(got, wanted)
    for ours, theirs in zip((*got.keys, *got.values), (*wanted.keys, *wanted.values), strict=True):
        scales, wanted_scales = (scales_of(pages).float().transpose(1, 2)[..., None] for pages in (ours, theirs))
        has_other_scale = (scales - wanted_scales).abs() > wanted_scales * 2**-7
        assert has_other_scale.float().mean() <= (0.02 if ours.dtype == FP8 else 0.0)
        numbers, expected = ours.float(), theirs.float()
        means_the_same = (numbers * scales - expected * wanted_scales).abs() <= wanted_scales * (expected.abs() / 7 + 2**-8)
        step = expected.abs() / 7 + 2**-9 if ours.dtype == FP8 else 1.0
        is_near = (numbers - expected).abs() <= step
        if ours.device.type == "cpu":  # Triton's interpreter rounds wrongly below powers of two, and subnormal numbers
            is_near |= ((numbers * 2 - expected).abs() <= numbers.abs() / 7) | (expected.abs() < 2**-6)
        else:
            assert ((numbers != expected) & ~has_other_scale).float().mean() < 0.005
        assert torch.where(has_other_scale, means_the_same, is_near).all()
    return None


def _assert_small_pages_near(got: KvPages, wanted: KvPages) -> None:
    """A code that differs is a neighbour, and few differ; a scale may be the next one."""
    assert got.storage.ne(wanted.storage).float().mean() < 0.005
    for ours, theirs in zip(zip(got.keys, got.values, strict=True), zip(wanted.keys, wanted.values, strict=True), strict=True):
        for numbers, expected, levels in zip(numbers_in(*ours), numbers_in(*theirs), (KEY_LEVELS, VALUE_LEVELS), strict=True):
            halves, expected = halves_of(numbers), halves_of(expected)
            steps = expected.abs().amax(-1, keepdim=True) * 2 / (levels - 1)
            assert ((halves - expected).abs() <= 1.3 * steps).all()


def check_rope_and_store(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Rotated queries, and pages that hold the new keys and values and nothing else that is new."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        for n_tokens in (1, 37):
            qkv = random_tensor(device, dtype, n_tokens, (n_heads + 2 * n_kv_heads) * head_dim).view(n_tokens, -1, head_dim)
            q, k, v = qkv.split((n_heads, n_kv_heads, n_kv_heads), 1)
            cos_sin = cos_sin_table(1e4 ** -(torch.arange(0, head_dim, 2, device=device) / head_dim), 4096)
            positions = torch.randint(0, 4096, (n_tokens,), device=device)
            slots = torch.randperm(7 * 16, device=device)[:n_tokens]
            kv = random_pages(KvShape(3, n_kv_heads, head_dim, page_dtype or dtype), 7, device)
            wanted = KvPages.over(kv.shape, kv.storage.clone())
            with poisoned_memory():
                got = CudaOps().rope_and_store(q, k, v, KvTarget(positions, cos_sin, kv.keys[1], kv.values[1], slots))
            want = TorchOps().rope_and_store(q, k, v, KvTarget(positions, cos_sin, wanted.keys[1], wanted.values[1], slots))
            assert_near(got, want, dtype)
            assert_pages_near(kv, wanted, dtype)
