"""Kernels that compress whole pages to places and expand them, beside the reference; plain functions as in kernel_checks."""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.cuda.kernels.pages.small_places import compress_pages, expand_places
from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8
from tests.support.workers.kernels.page_checks import random_pages

PAGE_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8, FP8)
_SHAPES = ((2, 3, 64), (1, 2, 128), (2, 1, 32))  # layers, kv heads, numbers of a head
_N_PAGES, _NUMBERS = 3, (2, 0)


def compressed_on_host(kv: KvPages, pages: tuple[int, ...]) -> torch.Tensor:
    """These pages as the reference compresses them: [n, bytes of a place] uint8."""
    form, memory = Int4Places(kv.shape), KvPages.over(kv.shape, kv.storage.cpu()).as_bytes()
    places = np.empty((len(pages), form.place_bytes), np.uint8)
    for place, page in zip(places, pages, strict=True):
        form.compress(memory[page], place)
    return torch.from_numpy(places)


def expanded_on_host(shape: KvShape, places: torch.Tensor) -> KvPages:
    """What these places stand for, as the reference says."""
    form, kv = Int4Places(shape), KvPages.allocate(shape, len(places), "cpu")
    for place, page in zip(places.numpy(), kv.as_bytes(), strict=True):
        form.expand(place, page)
    return kv


def compressed_on_device(kv: KvPages, pages: tuple[int, ...]) -> torch.Tensor:
    """As `compressed_on_host`, by the kernel."""
    places = torch.full((len(pages), Int4Places(kv.shape).place_bytes), 255, dtype=torch.uint8, device=kv.storage.device)
    compress_pages(kv.storage, kv.shape, torch.tensor(pages, device=kv.storage.device), places)
    return places.cpu()


def check_places(device: torch.device, dtype: torch.dtype) -> None:
    """Places have the bytes of the reference, but for few scales that are as good; pages that are expanded have them too, and
    no other page is touched."""
    for n_layers, n_kv_heads, head_dim in _SHAPES:
        kv = random_pages(KvShape(n_layers, n_kv_heads, head_dim, dtype), _N_PAGES, device)
        places = compressed_on_host(kv, _NUMBERS)
        others = compressed_on_device(kv, _NUMBERS).ne(places)
        assert others.float().mean() <= 0.001, f"{int(others.sum())} of {others.numel()} bytes"
        before = kv.storage.clone()
        expand_places(places.to(device), kv.storage, kv.shape, torch.tensor(_NUMBERS, device=device))
        assert torch.equal(kv.storage[1].view(torch.uint8), before[1].view(torch.uint8)), "another page"
        _assert_equal_pages(kv.storage[list(_NUMBERS)].cpu(), expanded_on_host(kv.shape, places), device)


def _assert_equal_pages(got: torch.Tensor, wanted: KvPages, device: torch.device) -> None:
    if device.type == "cpu" and wanted.shape.dtype not in (torch.float32, torch.float16):
        return  # Triton's interpreter rounds bfloat16 towards zero
    differs = got.view(torch.uint8).ne(wanted.storage.view(torch.uint8)).float().mean()
    assert differs <= (0.001 if wanted.shape.dtype == FP8 else 0.0), "a scale of two that are as good"
