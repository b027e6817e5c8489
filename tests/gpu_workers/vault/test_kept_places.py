"""The places of the host tier outlive the process that fills them: they give what was stored there, or nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.memory_generation import MemoryGeneration
from gpu_workers.process.rank_memory import RankMemory, layout_of
from gpu_workers.settings import HostCacheDtype, WorkerSettings
from gpu_workers.vault.host_pages import HostPages
from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.rank_vault import RankVault
from messages.wire.arrays import int32s, uint64s
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.depth import at_depth

_PAGE_BYTES = 128  # of the hash chain
_SETTINGS = WorkerSettings(hash_chain_pages=16, host_cache_bytes=4 * _PAGE_BYTES, vault=True)
_OWNER = "worker/0.0"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path / "vault-0")
    yield store
    store.kill()


class _Rank:
    """A process of the rank that has begun an epoch, and what lies in the vault of it."""

    def __init__(self, vault: StoreProcess, settings: WorkerSettings = _SETTINGS, layout: bytes = b"chain") -> None:
        self.engine = HashChainEngine(settings)
        kv, host = KeptMemory(vault.path, _OWNER, layout), KeptMemory(vault.path, _OWNER, layout, "host")
        self.memory = RankMemory("vault/0", RankVault(kv, host, None), MemoryGeneration(vault.path.parent, 0, 1))

    def begin(self, is_suspect: bool = False) -> int:
        return self.memory.prepare(epoch_id(1, 1), self.engine._region, self.engine.host_tier, is_suspect)

    def write(self, page: int, value: int) -> None:
        self.engine._pages[page * 16 : page * 16 + 16] = value

    def store(self, page: int, place: int, content_hash: int) -> None:
        assert self.engine.host_tier is not None
        self.engine.host_tier.store(int32s([page]), int32s([place]), uint64s([content_hash]))

    def load(self, place: int, content_hash: int) -> int | None:
        """What is loaded from a place; None: it has no such content."""
        assert self.engine.host_tier is not None
        failed = self.engine.host_tier.load(int32s([place]), int32s([9]), uint64s([content_hash]))
        return None if failed else int(self.engine._pages[9 * 16])


def _with_content(vault: StoreProcess) -> _Rank:
    """A rank that has stored a page with the hash 7 at place 2."""
    rank = _Rank(vault)
    rank.begin()
    rank.write(5, 77)
    rank.store(5, 2, 7)
    return rank


def _keys(vault: StoreProcess) -> list[str]:
    with vault.client() as client:
        entries = client.find(_OWNER)
    for entry in entries:
        os.close(entry.descriptor)
    return [entry.key.split()[0] for entry in entries]


def test_the_next_process_of_the_rank_has_the_places(vault: StoreProcess) -> None:
    first = _with_content(vault)
    second = _Rank(vault)
    assert second.begin() == first.begin()
    assert second.load(2, 7) == 77
    assert second.load(2, 8) is None


def test_a_standby_writes_nothing_there_before_its_first_epoch(vault: StoreProcess) -> None:
    standby, first = _Rank(vault), _with_content(vault)
    standby.write(1, 5)
    standby.store(1, 2, 8)
    assert first.load(2, 7) == 77
    standby.begin()
    assert standby.load(2, 8) is None


def test_suspect_places_are_found_by_nobody(vault: StoreProcess) -> None:
    _with_content(vault)
    second = _Rank(vault)
    second.begin(is_suspect=True)
    assert second.load(2, 7) is None
    assert sorted(_keys(vault)) == ["host", "kv"]
    second.memory.distrust()
    assert not _keys(vault)
    second.memory.kept.give_again()
    assert not _keys(vault)


def test_a_new_vault_gets_the_places(vault: StoreProcess) -> None:
    first = _with_content(vault)
    vault.kill()
    successor = StoreProcess(vault.path)
    first.memory.kept.give_again()
    second = _Rank(successor)
    second.begin()
    successor.kill()
    assert second.load(2, 7) == 77


def test_the_layout_in_the_vault_has_the_form_of_the_places() -> None:
    forms: tuple[HostCacheDtype, ...] = ("same", "int4", "adaptive")
    layouts = {layout_of(msgspec.structs.replace(_SETTINGS, host_cache_dtype=form)) for form in forms}
    assert len(layouts) == len(forms)


@pytest.mark.parametrize(
    "settings", [_SETTINGS, msgspec.structs.replace(_SETTINGS, host_cache_bytes=5 * _PAGE_BYTES)], ids=["format", "number"]
)
def test_places_of_another_format_or_number_are_given_back(vault: StoreProcess, settings: WorkerSettings) -> None:
    _with_content(vault)
    second = _Rank(vault, settings, b"chain" if settings is not _SETTINGS else b"llama")
    second.begin()
    assert second.load(2, 7) is None
    assert sorted(_keys(vault)) == ["host", "kv"]


def test_places_are_given_back_when_there_is_no_tier_any_more(vault: StoreProcess) -> None:
    _with_content(vault)
    without = _Rank(vault, msgspec.structs.replace(_SETTINGS, host_cache_bytes=0))
    without.begin()
    assert _keys(vault) == ["kv"]


_N_PLACES, _LARGE_BYTES = 3, 1 << 16
_WRITER = """
import sys, numpy as np
from gpu_workers.vault.host_pages import HostPages
from messages.wire.arrays import int32s, uint64s
n_places, page_bytes, descriptor = map(int, sys.argv[1:])
pages = np.zeros((1, page_bytes), np.uint8)
tier = HostPages(pages, n_places)
tier.region.share(descriptor)
number = 0
while True:
    number += 1
    pages[:] = number % 251
    tier.store(int32s([0]), int32s([number % n_places]), uint64s([number]))
    if number == 20:
        print(flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(at_depth(2)))
def test_a_process_that_is_killed_leaves_whole_contents_only(seed: int) -> None:
    pages = np.zeros((1, _LARGE_BYTES), np.uint8)
    tier = HostPages(pages, _N_PLACES)
    descriptor = tier.region.make()
    arguments = [str(number) for number in (_N_PLACES, _LARGE_BYTES, descriptor)]
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, *arguments], stdout=subprocess.PIPE, pass_fds=[descriptor])
    assert writer.stdout is not None
    writer.stdout.readline()
    for _ in range(random.Random(seed).randrange(100_000)):  # the kill meets any point of a store
        pass
    writer.kill()
    writer.wait()
    writer.stdout.close()
    tier.region.share(descriptor)
    os.close(descriptor)
    n_whole = 0
    for place, content_hash in enumerate(tier._hashes.tolist()):
        assert not content_hash or content_hash % _N_PLACES == place
        if not tier.load(int32s([place]), int32s([0]), uint64s([content_hash or 1])):
            assert (pages == content_hash % 251).all()
            n_whole += 1
        else:
            assert not content_hash, "a content with a hash is whole"
    assert n_whole >= _N_PLACES - 1
