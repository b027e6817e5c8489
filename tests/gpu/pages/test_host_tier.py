"""The host tier of a GPU: copies beside plans, each with a deadline. What was measured is printed (`pytest -s`)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_sums import page_sums
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import DEPTH
from tests.support.pages.gpu_tier import N_PLACES, PAGE_BYTES, SHAPE, RandomMoves, spin, tier_of
from tests.support.pages.tier_bench import moves_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
_DEADLINE_S = 60.0


@pytest.fixture
def kv() -> KvPages:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return KvPages.allocate(SHAPE, 16, "cuda")


@pytest.mark.parametrize("n_words", [8, 1000, 16_384, 16_392, 46_080, 262_144])
@pytest.mark.usefixtures("kv")
def test_the_kernel_computes_the_sums_of_the_reference(n_words: int) -> None:
    from gpu_workers.cuda.kernels.pages.page_sums import PARTS, sum_parts

    pages = np.random.default_rng(n_words).integers(0, 256, (5, 8 * n_words), dtype=np.uint8)
    ids, sums = torch.tensor([3, 0, 4], device="cuda"), torch.empty(3, PARTS, dtype=torch.int64, device="cuda")
    sum_parts(torch.from_numpy(pages).cuda().view(torch.int64), ids, sums)
    got = sums.cpu().numpy().view(np.uint64).sum(axis=1, dtype=np.uint64)
    assert got.tolist() == page_sums(pages[[3, 0, 4]]).tolist()


def test_nothing_waits_on_the_host_and_plans_wait_on_the_device(kv: KvPages) -> None:
    tier = tier_of(kv)
    pages = kv.storage.view(kv.n_pages, -1).view(torch.uint8)
    pages[3].fill_(1)
    pages[3].clone()  # the first use of a kernel loads it, which may wait for the device
    tier.store(int32s([3]), int32s([2]), uint64s([5]))
    assert tier.load(int32s([2]), int32s([5]), uint64s([5])) == []
    torch.cuda.synchronize()
    spin(0.5)
    pages[3].fill_(7)  # a plan, behind half a second of others
    began_s = time.monotonic()
    stored = tier.queue(moves_of([(3, 2, 77)], []))
    loaded = tier.queue(moves_of([], [(2, 5, 77)]))
    tier.hold_page(3)
    pages[3].fill_(9)  # the next plan takes over the page
    tier.hold_page(5)
    copied = pages[5].clone()  # and one reads what was loaded
    queued_s = time.monotonic() - began_s
    print(f"queued two messages and two plans in {queued_s * 1e3:.2f} ms while the device was busy")
    assert tier.n_undone == 2, "something has waited for the device"
    assert stored.wait().failed == []
    done = loaded.wait()
    print(f"the load took {done.load_s * 1e6:.0f} us")
    assert done.failed == []
    assert (copied == 7).all()
    assert (pages[3] == 9).all()
    assert (tier.memory.places[2] == 7).all()


@pytest.mark.parametrize("seed", range(4 * DEPTH))
def test_random_moves_beside_plans_lose_nothing(kv: KvPages, seed: int) -> None:
    walk = RandomMoves(tier_of(kv), kv.storage.view(kv.n_pages, -1).view(torch.int64), random.Random(seed))
    for _ in range(400):
        walk.step()
    n_loads, n_failed, n_wrong = walk.end(_DEADLINE_S)
    print(f"seed {seed}: {n_loads} pages loaded, {n_failed} failed, {n_wrong} with another content")
    assert (n_failed, n_wrong) == (0, 0)
    assert n_loads > 100


def test_damage_in_the_host_s_memory_is_noticed(kv: KvPages) -> None:
    tier = tier_of(kv)
    tier.store(int32s([3]), int32s([2]), uint64s([7]))
    assert tier.load(int32s([2]), int32s([4]), uint64s([7])) == []
    tier.memory.places[2, 100_001] ^= 4
    assert tier.load(int32s([2]), int32s([4]), uint64s([7])) == [0]
    assert tier.load(int32s([2]), int32s([4]), uint64s([7])) == [0]


def test_pages_go_to_the_disk_and_come_back_with_their_checksums(kv: KvPages) -> None:
    tier = tier_of(kv)
    kv.storage.view(kv.n_pages, -1).view(torch.uint8)[3].random_()
    tier.store(int32s([3]), int32s([2]), uint64s([7]))
    page = np.empty(PAGE_BYTES, np.uint8)
    check = tier.take(2, 7, page)
    assert check is not None
    tier.put(5, 7, check, page)
    assert tier.load(int32s([5]), int32s([6]), uint64s([7])) == []
    assert torch.equal(kv.storage[3].view(torch.uint8), kv.storage[6].view(torch.uint8))  # random bytes may be NaN


def test_speed() -> None:
    """Prints figures and asserts none."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    shape = KvShape(n_layers=32, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16)  # 2 MiB a page, as of Llama-3.1-8B
    large = KvPages.allocate(shape, 256, "cuda")
    began_s = time.monotonic()
    tier = tier_of(large, 256)
    print(f"{256 * shape.bytes_per_page >> 20} MiB pinned, with the kernel compiled, in {time.monotonic() - began_s:.2f} s")
    for n in (1, 16, 128, 256):
        same = [(number, number, 2 * number + 1) for number in range(n)]
        for turn in range(3):
            began_s = time.monotonic()
            stored = tier.queue(moves_of(same, []))
            queued_s = time.monotonic() - began_s
            stored.wait()
            stored_s = time.monotonic() - began_s
            began_s = time.monotonic()
            done = tier.queue(moves_of([], same)).wait()
            loaded_s = time.monotonic() - began_s
            assert not done.failed
            if turn == 2:
                gib = n * shape.bytes_per_page / 1e9
                print(f"{n} pages of 2 MiB: stored at {gib / stored_s:.1f} GB/s (queued in {queued_s * 1e6:.0f} us), loaded at"
                      f" {gib / loaded_s:.1f} GB/s by the host's clock, {gib / done.load_s:.1f} by the device's")  # fmt: skip


@pytest.fixture
def writer() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that stores page after page in shared memory: the descriptor, and the process."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    memory = os.memfd_create("places")
    os.ftruncate(memory, tier_bytes())
    command = [sys.executable, "-m", "tests.support.pages.gpu_tier", str(memory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[memory])
    yield memory, process
    process.kill()
    process.wait(_DEADLINE_S)
    os.close(memory)


def tier_bytes() -> int:
    """The size of the region of the tests' tier."""
    return tier_of(KvPages.allocate(SHAPE, 1, "cuda"), opens=False).region.n_bytes


def test_the_places_of_a_killed_process_are_whole_or_empty(kv: KvPages, writer: tuple[int, subprocess.Popen[str]]) -> None:
    memory, process = writer
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait(_DEADLINE_S)
    tier = tier_of(kv, opens=False)
    tier.region.share(memory)
    began_s = time.monotonic()
    tier.open()
    assert tier.wait_ready(_DEADLINE_S)
    print(f"the memory of the dead process was pinned in {(time.monotonic() - began_s) * 1e3:.0f} ms")
    hashes = np.frombuffer(tier.memory.tags, np.uint64, N_PLACES).tolist()
    n_whole = 0
    for place, content_hash in enumerate(hashes):
        if content_hash:
            assert tier.load(int32s([place]), int32s([1]), uint64s([content_hash])) == []
            assert (kv.storage.view(kv.n_pages, -1).view(torch.uint8)[1] == content_hash % 251).all()
            n_whole += 1
    print(f"{n_whole} of {N_PLACES} places are whole, the others empty")
    assert n_whole > N_PLACES // 2
