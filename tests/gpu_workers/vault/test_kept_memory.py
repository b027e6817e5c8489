"""A rank's KV memory outlives its process, is reused only with the same layout, and never when it is suspect."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.memory_generation import MemoryGeneration
from gpu_workers.process.rank_memory import layout_of
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.kept_memory import KeptMemory
from tests.support.custody.descriptor_store import StoreProcess

SETTINGS = WorkerSettings(hash_chain_pages=64, vault=True)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path / "vault-0")
    yield store
    store.kill()


def memory_at(vault: StoreProcess, layout: bytes = b"llama") -> KeptMemory:
    return KeptMemory(vault.path, "worker/0.0", layout)


def write(engine: HashChainEngine, value: int) -> None:
    engine._pages[:] = value


def content(engine: HashChainEngine) -> set[int]:
    return {int(value) for value in np.unique(engine._pages)}


def test_a_region_keeps_its_address_and_takes_the_content_of_shared_memory() -> None:
    region = HostRegion(8192)
    view = np.frombuffer(region.buffer, np.uint8)
    view[:] = 1  # as a warm-up does
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8192)
    os.pwrite(descriptor, b"\x07" * 100, 4000)
    region.share(descriptor)
    assert view[3999:4101].tolist() == [0, *[7] * 100, 0]
    view[0] = 9
    assert os.pread(descriptor, 1, 0) == b"\x09"
    os.ftruncate(descriptor, 10)
    with pytest.raises(ValueError, match="expected at least 8192 bytes, got 10"):
        region.share(descriptor)
    os.close(descriptor)


def test_the_next_gang_has_the_memory_of_the_gang_before(vault: StoreProcess) -> None:
    first, second = HashChainEngine(SETTINGS), HashChainEngine(SETTINGS)
    before = memory_at(vault)
    before.map_region(first._region, is_suspect=False)
    write(first, 77)
    write(second, 5)  # its own warm-up is not seen by anybody
    after = memory_at(vault)
    after.map_region(second._region, is_suspect=False)
    assert content(second) == {77}
    assert after.number == before.number != 0


def test_suspect_memory_is_not_used_again_by_anybody(vault: StoreProcess) -> None:
    first, second, third = (HashChainEngine(SETTINGS) for _ in range(3))
    before, after, last = (memory_at(vault) for _ in range(3))
    before.map_region(first._region, is_suspect=False)
    write(first, 77)
    after.map_region(second._region, is_suspect=True)
    assert content(second) == {0}
    assert after.number != before.number
    last.map_region(third._region, is_suspect=False)
    assert last.number == after.number


def test_memory_of_a_device_that_has_failed_is_found_by_nobody_and_given_to_no_other_vault(vault: StoreProcess) -> None:
    first, second, third = (HashChainEngine(SETTINGS) for _ in range(3))
    before, after = memory_at(vault), memory_at(vault)
    before.distrust()  # has no memory yet: that of the gang before stays
    before.map_region(first._region, is_suspect=False)
    write(first, 77)
    before.distrust()
    before.give_again()
    after.map_region(second._region, is_suspect=False)
    assert content(second) == {0}
    assert after.number != before.number
    before.distrust()  # that of the next gang stays
    last = memory_at(vault)
    last.map_region(third._region, is_suspect=False)
    assert last.number == after.number
    vault.kill()
    last.distrust()  # the fault is reported all the same


def test_memory_stays_private_where_no_file_may_be_as_large(vault: StoreProcess) -> None:
    first, second = HashChainEngine(SETTINGS), HashChainEngine(SETTINGS)
    mine, after = memory_at(vault), memory_at(vault)
    write(first, 77)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first._region.n_bytes - 1, usual[1]))
    try:
        mine.map_region(first._region, is_suspect=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert content(first) == {77}
    assert mine.number != 0
    mine.give_again()
    after.map_region(second._region, is_suspect=False)
    assert content(second) == {0}
    assert after.number != mine.number


def test_memory_of_another_layout_is_given_up(vault: StoreProcess) -> None:
    before, after = memory_at(vault, b"llama"), memory_at(vault, b"qwen")
    before.map_region(HashChainEngine(SETTINGS)._region, is_suspect=False)
    engine = HashChainEngine(SETTINGS)
    after.map_region(engine._region, is_suspect=False)
    assert content(engine) == {0}
    with vault.client() as client:
        entries = client.find("worker/0.0")
    assert [int.from_bytes(entry.meta[:8], "little") for entry in entries] == [after.number]
    for entry in entries:
        os.close(entry.descriptor)


def test_memory_of_another_size_is_given_up(vault: StoreProcess) -> None:
    before, after = memory_at(vault), memory_at(vault)
    before.map_region(HashChainEngine(SETTINGS)._region, is_suspect=False)
    after.map_region(HashChainEngine(WorkerSettings(hash_chain_pages=32))._region, is_suspect=False)
    assert after.number != before.number


def test_reserved_memory_is_that_of_the_first_gang_and_of_those_after_it(vault: StoreProcess) -> None:
    first, second = HashChainEngine(SETTINGS), HashChainEngine(SETTINGS)
    loading = memory_at(vault)
    assert loading.kept_bytes() == 0
    loading.reserve(first._region)
    assert loading.number == 0
    standby = memory_at(vault)
    assert standby.kept_bytes() == first._region.n_bytes
    standby.reserve(second._region)  # finds that of the first
    loading.map_region(first._region, is_suspect=False)
    write(first, 8)
    standby.map_region(second._region, is_suspect=False)
    assert content(second) == {8}
    assert standby.number == loading.number != 0
    standby.drop_kept()
    assert memory_at(vault).kept_bytes() == 0


def test_a_new_vault_gets_the_memory_from_the_rank_that_uses_it(vault: StoreProcess) -> None:
    first, second = HashChainEngine(SETTINGS), HashChainEngine(SETTINGS)
    before = memory_at(vault)
    before.map_region(first._region, is_suspect=False)
    write(first, 3)
    vault.kill()
    before.give_again()  # without a vault nothing happens
    successor = StoreProcess(vault.path)
    before.give_again()
    after = memory_at(successor)
    after.map_region(second._region, is_suspect=False)
    successor.kill()
    assert content(second) == {3}
    assert after.number == before.number


def test_without_a_vault_the_memory_is_private_until_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_workers.vault.kept_memory._WAIT_S", 0.0)
    engine = HashChainEngine(SETTINGS)
    memory = KeptMemory(tmp_path / "vault-0", "worker/0.0", b"llama")
    memory.map_region(engine._region, is_suspect=False)
    write(engine, 4)
    vault = StoreProcess(tmp_path / "vault-0")
    memory.give_again()
    after, next_engine = memory_at(vault), HashChainEngine(SETTINGS)
    after.map_region(next_engine._region, is_suspect=False)
    vault.kill()
    assert content(next_engine) == {4}


def test_what_decides_the_content_of_pages_decides_the_layout(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"1234")
    settings = WorkerSettings(model_folder=str(model), dtype="bfloat16")
    same = WorkerSettings(model_folder=str(model), dtype="bfloat16", threads=3, cpu_ranks=2)
    assert layout_of(settings) == layout_of(same)
    assert layout_of(settings) != layout_of(WorkerSettings(model_folder=str(model), dtype="float32"))
    assert layout_of(settings) != layout_of(WorkerSettings(model_folder=str(model), dtype="bfloat16", tp=2))
    assert layout_of(settings) != layout_of(WorkerSettings(model_folder=str(model), dtype="bfloat16", kv_dtype="int8"))
    assert layout_of(settings) != layout_of(WorkerSettings(model_folder=str(model), dtype="bfloat16", quantization="int8"))
    before = layout_of(settings)
    (model / "weights").write_bytes(b"12345")
    assert layout_of(settings) != before


@pytest.mark.parametrize("reporter", [0, 2])
def test_the_generation_of_a_gang_changes_with_the_memory_of_any_rank(tmp_path: Path, reporter: int) -> None:
    def agree(numbers: list[int], epoch: int) -> int:
        found: list[int] = []
        ranks = [MemoryGeneration(tmp_path, rank, 3, reporter) for rank in range(3)]
        first = threading.Thread(target=lambda: found.append(ranks[reporter].agree(epoch_id(1, epoch), numbers[reporter])))
        first.start()  # waits for the others
        others = [rank for rank in (2, 1, 0) if rank != reporter]
        assert [ranks[rank].agree(epoch_id(1, epoch), numbers[rank]) for rank in others] == [0, 0]
        first.join(60.0)
        return found[0]

    same = agree([11, 22, 33], 1)
    assert same == agree([11, 22, 33], 2)
    assert len({same, *(agree([11 + (i == 0), 22 + (i == 1), 33 + (i == 2)], 3 + i) for i in range(3))}) == 4
    assert 1 <= same <= 2**53


def test_a_gang_of_one_waits_for_nobody(tmp_path: Path) -> None:
    alone = MemoryGeneration(tmp_path, 0, 1)
    assert alone.agree(epoch_id(1, 1), 5) == alone.agree(epoch_id(2, 9), 5) != alone.agree(epoch_id(2, 10), 6)
