"""Places of compressed pages on a GPU: kernels beside the reference, and stores and loads. What was measured is printed
(`pytest -s`)."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_sums import page_sums
from gpu_workers.pages.framed_places import FramedPlaces
from messages.caches.page_moves import MovePages
from messages.wire.arrays import int32s, uint64s
from tests.support.pages.gpu_tier import TestedTier, framed_tier_of, tier_of
from tests.support.pages.tier_bench import moves_of
from tests.support.workers.device_choice import kernel_device
from tests.support.workers.kernels.page_checks import random_pages
from tests.support.workers.kernels.place_checks import PAGE_DTYPES, check_places, compressed_on_host, expanded_on_host

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
_SHAPE = KvShape(n_layers=32, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16)  # 2 MiB a page, as of Llama-3.1-8B
_N = 64  # pages: more than are compressed at once


@pytest.mark.parametrize("dtype", PAGE_DTYPES, ids=str)
def test_kernels_give_what_the_reference_gives(dtype: torch.dtype) -> None:
    device = kernel_device()
    if device.type == "cuda" and torch.cuda.get_device_capability() < (8, 9) and dtype == torch.float8_e4m3fn:
        pytest.skip("needs a CUDA device of compute capability 8.9")
    torch.manual_seed(7)
    check_places(device, dtype)


@pytest.fixture(scope="module")
def kv() -> KvPages:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return random_pages(_SHAPE, _N, torch.device("cuda"))


@pytest.fixture
def tier(kv: KvPages) -> TestedTier:
    return tier_of(kv, _N, is_compressed=True)


def test_stored_pages_come_back_as_the_reference_expands_them(kv: KvPages, tier: TestedTier) -> None:
    kv.storage.normal_()
    pages = tuple(range(40))
    expected = expanded_on_host(_SHAPE, compressed_on_host(kv, pages))
    places = np.random.default_rng(1).permutation(_N)[:40]
    tier.store(int32s(pages), int32s(places.tolist()), uint64s([page + 1 for page in pages]))
    kv.storage.zero_()
    assert tier.load(int32s(places.tolist()), int32s(pages), uint64s([page + 1 for page in pages])) == []
    differs = kv.storage[:40].cpu().ne(expected.storage)
    assert differs.float().mean() < 0.001, "a scale of two that are as good"


def test_the_disk_gets_compressed_bytes_and_damage_is_noticed(kv: KvPages, tier: TestedTier) -> None:
    kv.storage.normal_()
    place_bytes = tier.page_bytes
    assert kv.shape.bytes_per_page > 3.6 * place_bytes
    tier.store(int32s([3]), int32s([2]), uint64s([7]))
    page = np.empty(place_bytes, np.uint8)
    check = tier.take(2, 7, page)
    assert check is not None
    assert check == page_sums(page[None])[0]
    tier.put(5, 7, check, page)
    assert tier.load(int32s([5, 2]), int32s([6, 8]), uint64s([7, 7])) == []
    assert torch.equal(kv.storage[6], kv.storage[8])
    tier.memory.places[2, 100_001] ^= 4
    assert tier.load(int32s([2]), int32s([4]), uint64s([7])) == [0]


def test_cold_pages_are_compressed_where_they_lie_and_new_ones_are_not(kv: KvPages) -> None:
    kv.storage.normal_()
    n = 40
    tier = framed_tier_of(kv, 16, n)
    before, numbers = kv.storage.cpu(), int32s(range(n))
    for first in range(0, n, 5):
        some = slice(first, first + 5)
        tier.store(numbers[some], numbers[some], uint64s([number + 1 for number in range(first, first + 5)]))
    small = [number for number in range(n) if tier.rooms.frame_of(number) is None]
    assert tier.rooms.n_plain == n - len(small) >= 4
    assert small == list(range(len(small))), "the oldest"
    kv.storage.zero_()
    assert tier.load(numbers, numbers, uint64s([number + 1 for number in range(n)])) == []
    after, expected = kv.storage.cpu(), expanded_on_host(_SHAPE, compressed_on_host(KvPages.over(_SHAPE, before), tuple(small)))
    assert torch.equal(after[len(small) : n], before[len(small) : n])
    assert after[: len(small)].ne(expected.storage).float().mean() < 0.001
    page = np.empty(tier.page_bytes, np.uint8)
    for number in (0, n - 1):  # compressed already, and compressed for the disk
        assert tier.take(number, number + 1, page) is not None
        assert torch.from_numpy(page).ne(compressed_on_host(KvPages.over(_SHAPE, before), (number,))[0]).float().mean() < 0.001


def test_speed(kv: KvPages) -> None:
    """Prints figures and asserts none."""
    for kind in ("as they are", "compressed", "adaptive"):
        is_framed, n_frames = kind == "adaptive", _N // 3
        tier = framed_tier_of(kv, n_frames, _N) if is_framed else tier_of(kv, _N, is_compressed=kind == "compressed")
        for n in (1, 16, _N):
            same = [(number, number, 2 * number + 1) for number in range(n)]
            for _ in range(2):
                _timed(tier, moves_of(same, []))
                _timed(tier, moves_of([], same))
            (stored_s, _), (loaded_s, load_s) = _timed(tier, moves_of(same, [])), _timed(tier, moves_of([], same))
            stored_us, loaded_us, device_us = (seconds / n * 1e6 for seconds in (stored_s, loaded_s, load_s))
            print(f"{kind}, {n} pages of 2 MiB, us a page: stored in"
                  f" {stored_us:.1f}, loaded in {loaded_us:.1f} ({device_us:.1f} by the device's clock)")  # fmt: skip


def _timed(tier: TestedTier | FramedPlaces, moves: MovePages) -> tuple[float, float]:
    """Seconds that these moves took, and of these the device's for loads."""
    began_s = time.monotonic()
    done = tier.queue(moves).wait()
    assert not done.failed
    return time.monotonic() - began_s, done.load_s
