"""How many sequences of mixed lengths fit into pages and into contiguous slots, and what the page ledger costs in a step."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from dataclasses import dataclass

from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.forgetting_ledger import ForgettingLedger
from messages.steps import PAGE_TOKENS

_HASH_BITS = 64
_TOKENS = bytes(4 * PAGE_TOKENS)
_TURNS = 4000  # sequences that enter while capacity is measured
_WARM_UP_STEPS, _STEPS = 200, 2000


def log_uniform(chance: random.Random, least: int, most: int) -> int:
    """A length in tokens: each power of two is as likely as the next one."""
    return round(math.exp(chance.uniform(math.log(least), math.log(most))))


@dataclass(frozen=True)
class CapacityFigures:
    """Means over time, while as many sequences run as fit, in order."""

    contiguous: float  # sequences at once, each with memory for the longest one
    paged: float  # sequences at once, each with the pages of its length
    used_share: float  # of the tokens that the pages have room for

    @property
    def ratio(self) -> float:
        """Sequences at once in pages, as a multiple of those in contiguous slots."""
        return self.paged / self.contiguous


def measure_capacity(n_pages: int, least: int, most: int, seed: int = 0) -> CapacityFigures:
    """Sequences of `least` to `most` tokens, log-uniform, enter in order as soon as they fit; which one ends next is random."""
    chance, ledger = random.Random(seed), ForgettingLedger(n_pages, make_eviction(EvictionName.LRU, n_pages))
    running: list[tuple[list[int], int]] = []
    next_length, n_running, used, n_times = log_uniform(chance, least, most), 0, 0, 0
    for turn in range(_TURNS):
        while (needed := -(-next_length // PAGE_TOKENS)) <= ledger.n_available:
            running.append(([_allocated(ledger) for _ in range(needed)], next_length))
            next_length = log_uniform(chance, least, most)
        if turn >= _TURNS // 10:
            n_running, n_times = n_running + len(running), n_times + 1
            used += sum(length for _, length in running)
        ledger.release(running.pop(chance.randrange(len(running)))[0])
    contiguous = n_pages * PAGE_TOKENS // most
    return CapacityFigures(contiguous, n_running / n_times, used / n_times / (n_pages * PAGE_TOKENS))


@dataclass(frozen=True)
class LedgerTimes:
    """Processor time of the ledger in a step, in seconds; `evictions`: in all measured steps."""

    mean_s: float
    evictions: int


def measure_ledger(
    n_pages: int, n_rows: int, least: int, most: int, seed: int = 0, policy: EvictionName = EvictionName.LRU
) -> LedgerTimes:
    """Steps of `n_rows` decoding sequences. One that has reached its length gives its pages back and another one enters, with
    pages for half of its length at once; full pages are sealed. The cache is full, so each page that is taken evicts another
    one."""
    chance, ledger = random.Random(seed), ForgettingLedger(n_pages, make_eviction(policy, n_pages))
    rows = deque(_DecodingRow(chance, least, most) for _ in range(n_rows))
    _fill(ledger, chance)
    cpu_s, evictions = 0.0, 0
    for step in range(_WARM_UP_STEPS + _STEPS):
        if step == _WARM_UP_STEPS:
            cpu_s, evictions = 0.0, ledger.statistics().evictions
        work = [(row, *row.next()) for row in rows]
        began_s = time.process_time()
        for row, n_new, contents, is_over in work:
            row.pages += ledger.allocate_all(n_new) if n_new > 1 else [_allocated(ledger) for _ in range(n_new)]
            for index, content_hash, parent in contents:
                ledger.seal(row.pages[index], content_hash, parent, _TOKENS, True, row.pages[index - 1] if index else None)
            if is_over:
                ledger.release(row.pages)
        ledger.commit_plan()
        ledger.apply_plan()
        ledger.take_changes()
        cpu_s += time.process_time() - began_s
        rows = deque(_DecodingRow(chance, least, most) if is_over else row for row, _, _, is_over in work)
    return LedgerTimes(cpu_s / _STEPS, ledger.statistics().evictions - evictions)


class _DecodingRow:
    """A sequence that runs; what it asks of the ledger is made up before the time is taken."""

    def __init__(self, chance: random.Random, least: int, most: int) -> None:
        self._chance, self._length = chance, log_uniform(chance, least, most)
        self._n_tokens, self._hashes = 0, [0]
        self.pages: list[int] = []

    def next(self) -> tuple[int, list[tuple[int, int, int]], bool]:
        """(pages to take, (index, hash, parent) of pages that become full, True at the end) of its next step."""
        before = self._n_tokens
        self._n_tokens = before + 1 if before else max(self._length // 2, 1)
        n_new = -(-self._n_tokens // PAGE_TOKENS) - -(-before // PAGE_TOKENS)
        contents = []
        for index in range(before // PAGE_TOKENS, self._n_tokens // PAGE_TOKENS):
            self._hashes.append(self._chance.getrandbits(_HASH_BITS))
            contents.append((index, self._hashes[-1], self._hashes[-2]))
        return n_new, contents, self._n_tokens >= self._length


def _allocated(ledger: ForgettingLedger) -> int:
    page = ledger.allocate()
    assert page is not None, "the rows hold more pages than there are"
    return page


def _fill(ledger: ForgettingLedger, chance: random.Random) -> None:
    """All pages are cached, with contents that nobody asks for."""
    pages = [_allocated(ledger) for _ in range(ledger.n_pages)]
    for page in pages:
        ledger.seal(page, chance.getrandbits(_HASH_BITS), 0, _TOKENS, True)
    ledger.commit_plan()
    ledger.apply_plan()
    ledger.release(pages)
    ledger.take_changes()
