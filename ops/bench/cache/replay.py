"""Plays a trace through a page ledger: sequences look up their prompts, hold their pages for their time, and give them back."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.forgetting_ledger import ForgettingLedger
from ops.bench.cache.trace_file import HashedRequest


class PageCache(Protocol):
    """What a replay asks of a cache of pages."""

    def enter(self, request: HashedRequest) -> tuple[list[int], int] | None:
        """The pages that a request holds until its end, and how many of its prompt were found; None if there are too few."""
        ...

    def leave(self, held: list[int]) -> None:
        """A request is over: it gives back its pages, which are named in its order."""
        ...


class LedgerCache(PageCache):
    """The scheduler's page ledger with a policy. Each request is a plan of its own, applied at once."""

    def __init__(self, n_pages: int, policy: EvictionPolicy) -> None:
        self.ledger = ForgettingLedger(n_pages, policy)

    def enter(self, request: HashedRequest) -> tuple[list[int], int] | None:
        ledger, held = self.ledger, list[int]()
        for content in request.contents[: request.prompt_pages]:
            page = ledger.find(*content)
            if page is None:
                break
            held.append(page)
        n_found = len(held)
        ledger.acquire(held)
        if len(request.contents) - n_found + 1 > ledger.n_available:
            ledger.release(held)
            return None
        ledger.count_hits(held)
        for content in request.contents[n_found:]:
            page = ledger.allocate()
            assert page is not None, "the pages were counted"
            ledger.seal(page, *content, is_planned=True)
            held.append(page)
        last = ledger.allocate()  # the page that the answer leaves partly filled
        assert last is not None, "the pages were counted"
        ledger.commit_plan()
        ledger.apply_plan()
        return [*held, last], n_found

    def leave(self, held: list[int]) -> None:
        self.ledger.release(held)
        self.ledger.take_changes()


@dataclass(frozen=True)
class Replayed:
    """The result of one replay."""

    prompt_pages: int
    hits: int
    pages: int  # that requests entered with: found or computed
    cpu_s: float

    @property
    def hit_rate(self) -> float:
        """The share of the prompts' pages that were found."""
        return self.hits / self.prompt_pages if self.prompt_pages else 0.0

    @property
    def pages_per_s(self) -> float:
        """Pages for each second of processor time, through look-up, allocation, sealing and release."""
        return self.pages / self.cpu_s if self.cpu_s else 0.0


def findable_rate(trace: list[HashedRequest]) -> float:
    """The share of the prompts' pages that a cache without bounds would find."""
    seen, n_found, n_pages = set[int](), 0, 0
    for request in trace:
        hashes = [content_hash for content_hash, _, _ in request.contents]
        known = [content_hash in seen for content_hash in hashes[: request.prompt_pages]]
        n_found += known.index(False) if False in known else len(known)
        n_pages += len(known)
        seen.update(hashes)
    return n_found / n_pages if n_pages else 0.0


def replay(trace: list[HashedRequest], cache: PageCache) -> Replayed:
    """Play a trace. A request that finds too few pages waits for the ends of others; that must be enough.

    Raises: ValueError when the cache is too small for a request.
    """
    running: list[tuple[int, int, list[int]]] = []  # (end in ms, number, pages held)
    numbers, hits, began_s = count(), 0, time.process_time()
    for request in trace:
        while running and running[0][0] <= request.at_ms:
            cache.leave(heapq.heappop(running)[2])
        while (entered := cache.enter(request)) is None:
            if not running:
                raise ValueError(f"pages: expected at least {len(request.contents) + 1}, as one request needs, got fewer")
            cache.leave(heapq.heappop(running)[2])
        hits += entered[1]
        heapq.heappush(running, (request.at_ms + request.took_ms, next(numbers), entered[0]))
    cpu_s = time.process_time() - began_s
    n_pages = sum(len(request.contents) for request in trace)
    return Replayed(sum(request.prompt_pages for request in trace), hits, n_pages, cpu_s)
