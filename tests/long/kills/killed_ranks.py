"""Thousands of deaths of a rank whose memory lies in a vault: `python -m tests.long.kills.killed_ranks STORE N SEED`.

STORE: the socket of a vault's descriptor store. Each process is a fork of this one. It takes the memory of its predecessor from
the store, as the next gang does, and compares every page that has a record, and every place of the host tier that has a hash,
with what must stand there. Then it writes pages, their records and places as fast as it can, until it is killed.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import structlog

from actors.pages.seal_table import SealTable, create_table
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.gang_agreement import epoch_id
from gpu_workers.process.memory_generation import MemoryGeneration
from gpu_workers.process.rank_memory import RankMemory
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.host_pages import HostPages
from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.rank_vault import RankVault
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s

N_PAGES, N_PLACES, _PAGE_BYTES = 16, 4, 128
_SPARE = N_PAGES - 1  # the page that places are loaded to
_SETTINGS = WorkerSettings(
    hash_chain_pages=N_PAGES, n_slots=1, max_length=64, max_step_tokens=16, host_cache_bytes=N_PLACES * _PAGE_BYTES, vault=True
)
_OWNER, _LONGEST_LIFE = "worker/0.0", 20_000  # in turns of an empty loop, after everything was written once


def _tokens_of(content: int) -> bytes:
    return np.arange(content, content + PAGE_TOKENS).astype(np.int32).tobytes()


class KilledRank:
    """One life of the rank."""

    def __init__(self, store: Path, table: SealTable, number: int) -> None:
        self._engine, self._table, self._number = HashChainEngine(_SETTINGS), table, number
        kv, host = KeptMemory(store, _OWNER, b"chain"), KeptMemory(store, _OWNER, b"chain", "host")
        self._memory = RankMemory("vault/0", RankVault(kv, host, None), MemoryGeneration(store.parent, 0, 1))
        self._memory.prepare(epoch_id(1, number + 1), self._engine._region, self._engine.host_tier, False)

    def check(self) -> int:
        """Compare what is known with what is there; returns how many pages and places are known. Raises: AssertionError."""
        tier = self._engine.host_tier
        assert isinstance(tier, HostPages)
        pages = self._table.read().pages.tolist()
        for page in pages:
            content, parent, tokens = self._table.content(page)
            assert (parent, tokens) == (content - 1, _tokens_of(content)), f"record of page {page}"
            assert (self._page(page) == content).all(), f"page {page}"
        hashes = [int(content) for content in tier._hashes.tolist() if content]
        for place, content in enumerate(tier._hashes.tolist()):
            if content:
                assert not tier.load(int32s([place]), int32s([_SPARE]), uint64s([content])), f"place {place}"
                assert (self._page(_SPARE) == content).all(), f"place {place}"
        return len(pages) + len(hashes)

    def work(self, told: int) -> None:
        """Write until the end. Every page and place has been written when one byte comes from the pipe `told`."""
        tier = self._engine.host_tier
        assert isinstance(tier, HostPages)
        content = (self._number + 1) << 16
        while True:
            content += 1
            page = content % _SPARE
            self._table.erase(page)
            self._page(page)[:] = content
            self._table.record(page, content, content - 1, _tokens_of(content))
            tier.store(int32s([page]), int32s([content % N_PLACES]), uint64s([content]))
            if content & 0xFFFF == N_PAGES:
                os.write(told, b"+")

    def _page(self, page: int) -> np.ndarray:
        return self._engine._pages[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS]


def live_and_die(store: Path, table: SealTable, number: int, life: int) -> int:
    """One life and its kill; returns what `KilledRank.check` has found. Raises: AssertionError if something was wrong."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            rank = KilledRank(store, table, number)
            os.write(told, bytes([rank.check()]))
            rank.work(told)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(told)
    found, _ = os.read(heard, 1), os.read(heard, 1)
    for _ in range(life):  # the kill meets any point of its work
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(heard)
    assert found, f"life {number}: what it has found was wrong"
    return found[0]


def main() -> None:
    """Kill so many ranks. Prints their number, the pages and places that they have checked, and seconds of processor time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    store, n_kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    _, table = create_table(1, N_PAGES)
    n_checked = sum(live_and_die(store, table, number, chance.randrange(_LONGEST_LIFE)) for number in range(n_kills))
    spent_s = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(n_kills, n_checked, round(spent_s, 1), flush=True)


if __name__ == "__main__":
    main()
