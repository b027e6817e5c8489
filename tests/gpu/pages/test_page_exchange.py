"""Pages go between replicas on GPUs, through pinned memory: the bytes are the same, and so are the tokens of real servers."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.vault.exchange_end import DoneExchange, ExchangeEnd, MappedPlaces
from messages.caches.exchange import ExchangePages
from messages.client import Client
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s
from tests.support.real_server import RealServer, real_server
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
_SHAPE = KvShape(n_layers=32, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16)  # 2 MiB a page, as of Llama-3.1-8B
_N = 128  # pages
_DEADLINE_S = 60.0
_N_NEW = 128  # tokens of an answer: a replica with the prefix is so busy with a crowd that the other one gets a part of it
_ALL, _HASHES = int32s(range(_N)), uint64s(range(1, _N + 1))


class _Pair:
    """A lender and a borrower in one process, on one GPU or on two."""

    def __init__(self, n_devices: int) -> None:
        from gpu_workers.pages.cuda.cuda_copy_stream import cuda_copies
        from gpu_workers.pages.cuda.cuda_pinning import CudaPinning
        from gpu_workers.pages.queued_exchange import ForeignMemory, PinnedExchange

        self.pools = [KvPages.allocate(_SHAPE, _N, f"cuda:{index % n_devices}") for index in (0, 1)]
        ends = []
        for pool in self.pools:
            torch.cuda.set_device(pool.storage.device)
            ends.append(PinnedExchange(cuda_copies(pool), _N, _SHAPE.bytes_per_page, CudaPinning(pool.storage.device)))
        self.lender, self.borrower = ends
        descriptor = self.lender.region.make()
        self.lender.region.share(descriptor)
        for end in ends:
            end.open()
        foreign = self.borrower.map(descriptor, 1)
        os.close(descriptor)
        assert isinstance(foreign, ForeignMemory)
        self.foreign = foreign
        for name, memory in (("lender", self.lender), ("borrower", self.borrower), ("foreign", foreign.memory)):
            assert memory.wait_ready(_DEADLINE_S), f"the memory of the {name} is not pinned; the log says why"

    def close(self) -> None:
        """Unpin all memory. CUDA remembers what is pinned by its address, and the next pair may be mapped there."""
        for memory in (self.foreign.memory, self.borrower._memory, self.lender._memory):
            memory.unpin()

    def store(self) -> tuple[DoneExchange, float]:
        """Store all pages. (what became of it, seconds)."""
        torch.cuda.set_device(self.pools[0].storage.device)
        moves = ExchangePages(epoch=1, number=1, stored_pages=_ALL, stored_places=_ALL, stored_hashes=_HASHES)
        return _timed(self.lender, moves, None)

    def load(self) -> tuple[DoneExchange, float]:
        """Load all pages. (what became of it, seconds)."""
        torch.cuda.set_device(self.pools[1].storage.device)
        moves = ExchangePages(epoch=1, number=1, loaded_pages=_ALL, loaded_places=_ALL, loaded_hashes=_HASHES)
        return _timed(self.borrower, moves, self.foreign)


def _timed(end: ExchangeEnd, moves: ExchangePages, lender: MappedPlaces | None) -> tuple[DoneExchange, float]:
    began_s = time.monotonic()
    moved = end.move(moves, lender)
    assert not isinstance(moved, DoneExchange), "the copies are queued"
    return moved.wait(), time.monotonic() - began_s


@pytest.mark.parametrize("n_devices", [1, 2])
def test_pages_arrive_as_they_were(n_devices: int) -> None:
    if torch.cuda.device_count() < n_devices:
        pytest.skip(f"needs {n_devices} devices")
    pair = _Pair(n_devices)
    try:
        _check_copies(pair, n_devices)
    finally:
        pair.close()


def _check_copies(pair: _Pair, n_devices: int) -> None:
    source, target = pair.pools
    for turn in range(3):
        source.storage.view(_N, -1).view(torch.uint8).random_()
        torch.cuda.synchronize(source.storage.device)
        stores, stored_s = pair.store()
        loads, loaded_s = pair.load()
        assert not loads.failed, f"turn {turn}: {len(loads.failed)} of {_N} pages"
        assert torch.equal(source.storage.view(torch.uint8).cpu(), target.storage.view(torch.uint8).cpu())
        print(f"turn {turn}, {n_devices} devices: a page of 2 MiB stored in {stored_s / _N * 1e6:.0f} us (device"
              f" {stores.store_s / _N * 1e6:.0f}), loaded in {loaded_s / _N * 1e6:.0f} us (device"
              f" {loads.load_s / _N * 1e6:.0f})")  # fmt: skip
    pair.foreign.memory.places[5, 77] ^= 1
    assert pair.load()[0].failed == [5]


def _moved(server: RealServer, name: str = "exchange_moved") -> float:
    return sum(server.child(f"scheduler/{replica}").statistics.get(name, 0.0) for replica in (0, 1))


def _ask(server: RealServer, number: int) -> list[int]:
    prompt = [3 + (number * 7919 + index * 104_729) % 4000 for index in range(20 * PAGE_TOKENS + 1)]
    with Client(server.zeromq) as client:
        return list(client.generate(prompt, max_tokens=_N_NEW, temperature=0.0, ignore_eos=True).tokens)


def test_a_crowd_moves_its_prefix_to_the_other_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.device_count() < 2:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")  # both replicas on one device
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_HEADS))
    model = ("--model", str(tmp_path), "--load-format", "random", "--dtype", "float32", "--no-speculation", "--deterministic")
    sets = ("worker.exchange_bytes=64MiB", "scheduler.tier_loads=always", "worker.n_slots=4", "gateway.prefix_wait_s=0.05")
    sets += ("worker.kv_memory_bytes=256MiB",)
    flags = (*model, "--gpus", "2", "--max-length", "512", *(part for each in sets for part in ("--set", each)))
    with real_server(*flags) as server, ThreadPoolExecutor(32) as threads:
        for number in range(20):
            first = _ask(server, number)
            assert list(threads.map(lambda number: _ask(server, number), [number] * 32)) == [first] * 32
            if _moved(server) >= 20:
                break
        server.wait_for(lambda report: _moved(server) >= 20)
        print(f"moved {_moved(server):.0f}, failed {_moved(server, 'exchange_failed'):.0f}")
