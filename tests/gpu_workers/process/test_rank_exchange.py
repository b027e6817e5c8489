"""The exchange of pages between ranks of two replicas, through a vault in a process of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.page_moves import PageMover
from gpu_workers.process.rank_memory import RankMemory, memory_of
from gpu_workers.settings import WorkerSettings
from messages.caches.exchange import ExchangePages, PagesExchanged
from messages.wire.arrays import int32s, int64s, uint64s
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.depth import at_depth
from tests.support.memory_cluster import spawn_spec_of
from tests.support.scheduler.memory_exchange import places_of

_SETTINGS = WorkerSettings(hash_chain_pages=16, exchange_bytes=4 * 128, vault=True)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[StoreProcess]:
    """That of both replicas."""
    store = StoreProcess(tmp_path / "vault-0")
    (tmp_path / "vault-1").symlink_to(tmp_path / "vault-0")
    yield store
    store.kill()


class _Rank:
    """A process of rank 0 of a replica that has begun an epoch."""

    def __init__(self, run_dir: Path, replica: int, settings: WorkerSettings = _SETTINGS) -> None:
        self.engine = HashChainEngine(settings)
        spec = msgspec.structs.replace(spawn_spec_of(f"worker/{replica}.0", settings), run_dir=str(run_dir))
        self._memory: RankMemory = memory_of(spec, settings, run_dir)
        self._memory.prepare(epoch_id(1, 1), self.engine._region, None, False, self.engine.exchange)

    def store(self, page: int, place: int, content_hash: int) -> int:
        """Returns the number of the memory that the place is in."""
        pages, places, hashes = int32s([page]), int32s([place]), uint64s([content_hash])
        moves = ExchangePages(epoch=1, number=1, stored_pages=pages, stored_places=places, stored_hashes=hashes)
        return int(self.move(moves).region)

    def load(self, place: int, content_hash: int, region: int) -> int | None:
        """What is loaded from a place of replica 0 to page 9; None: it has no such content."""
        places, pages, hashes = int32s([place]), int32s([9]), uint64s([content_hash])
        moves = ExchangePages(
            epoch=1, number=2, regions=int64s([region]), loaded_places=places, loaded_pages=pages, loaded_hashes=hashes
        )
        answer = self.move(moves)
        return None if len(answer.failed) else int(self.engine._pages[9 * 16])

    def move(self, moves: ExchangePages) -> PagesExchanged:
        assert self._memory.exchange is not None
        answers: list[PagesExchanged] = []
        self._memory.exchange.move(self.engine.exchange, moves, PageMover(_no_error), answers.append)
        return answers.pop()

    def write(self, page: int, value: int) -> None:
        self.engine._pages[page * 16 : page * 16 + 16] = value


def _no_error(doing: str, error: Exception) -> None:
    raise AssertionError(doing) from error


def _lender(run_dir: Path) -> tuple[_Rank, int]:
    """A rank of replica 0 with 77 in the page of hash 7, at place 2, and the number of its memory."""
    lender = _Rank(run_dir, 0)
    lender.write(5, 77)
    return lender, lender.store(5, 2, 7)


def test_a_page_comes_from_a_rank_of_another_replica(vault: StoreProcess, tmp_path: Path) -> None:
    _, region = _lender(tmp_path)
    borrower = _Rank(tmp_path, 1)
    assert borrower.load(2, 7, region) == 77
    assert borrower.load(2, 8, region) is None, "another content"
    assert borrower.load(3, 7, region) is None, "an empty place"
    assert borrower.load(40, 7, region) is None, "no place"
    assert borrower.load(2, 7, region + 1) is None, "other memory"
    assert borrower.load(2, 7, 0) is None


def test_memory_of_the_next_rank_is_mapped_anew(vault: StoreProcess, tmp_path: Path) -> None:
    _, region = _lender(tmp_path)
    borrower = _Rank(tmp_path, 1)
    assert borrower.load(2, 7, region) == 77
    following = _Rank(tmp_path, 0)
    following.write(3, 78)
    now = following.store(3, 1, 9)
    assert now != region
    assert borrower.load(1, 9, now) == 78
    assert borrower.load(2, 7, now) is None, "what lay in the memory before is gone"


@pytest.mark.parametrize("change", [{"n_slots": 3}, {"deterministic": True}, {"kv_dtype": "int8"}])
def test_pages_of_another_meaning_are_not_found(vault: StoreProcess, tmp_path: Path, change: dict[str, object]) -> None:
    _, region = _lender(tmp_path)
    assert _Rank(tmp_path, 1, msgspec.structs.replace(_SETTINGS, **change)).load(2, 7, region) is None


def test_a_vault_that_is_gone_costs_the_load(vault: StoreProcess, tmp_path: Path) -> None:
    _, region = _lender(tmp_path)
    borrower = _Rank(tmp_path, 1)
    vault.kill()
    assert borrower.load(2, 7, region) is None


@pytest.mark.parametrize("seed", range(at_depth(10)))
def test_a_flipped_bit_of_a_place_is_noticed(vault: StoreProcess, tmp_path: Path, seed: int) -> None:
    """In its hash, in its checksum or in its bytes."""
    lender, region = _lender(tmp_path)
    borrower, rng = _Rank(tmp_path, 1), random.Random(seed)
    own = places_of(lender.engine)
    part = rng.choice([own._hashes[2:3], own._sums[2:3], own._places[2]]).view(np.uint8)
    part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
    assert borrower.load(2, 7, region) is None


def test_bytes_of_another_content_under_its_hash_are_noticed(vault: StoreProcess, tmp_path: Path) -> None:
    """As a reader may see a place that is overwritten while it reads: the hash of before, and checksum and bytes of after."""
    lender, region = _lender(tmp_path)
    lender.write(6, 78)
    lender.store(6, 2, 8)
    places_of(lender.engine)._hashes[2] = 7
    assert _Rank(tmp_path, 1).load(2, 7, region) is None
