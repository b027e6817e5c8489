"""LFU against a naive model, old favourites leave, and hit rates of LRU and LFU on simulated loads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lfu import _MOST_USES, LfuEviction
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.page_ledger import PageLedger

N_PAGES = 6


class NaiveLfu:
    """What LfuEviction must do, found by looking at every page."""

    def __init__(self) -> None:
        self.cached: dict[int, tuple[int, int]] = {}  # page -> (rank, when it was added)
        self.uses: dict[int, int] = {}
        self._age = 0
        self._clock = count()

    def add(self, page: int) -> None:
        self.cached[page] = (self._age + min(self.uses.get(page, 1), _MOST_USES), next(self._clock))

    def evict(self) -> int:
        page = min(self.cached, key=lambda p: self.cached[p])
        self._age = self.cached[page][0]
        self.drop(page)
        return page

    def drop(self, page: int) -> None:
        self.cached.pop(page, None)
        self.uses.pop(page, None)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "use", "evict", "drop"]), st.integers(0, N_PAGES - 1))))
def test_lfu_equals_a_naive_model(actions: list[tuple[str, int]]) -> None:
    policy, naive = LfuEviction(N_PAGES), NaiveLfu()
    for page in range(N_PAGES):
        policy.learn(page, page, 0)
    for action, page in actions:
        match action:
            case "add" if page not in naive.cached:
                policy.add([page])
                naive.add(page)
            case "remove" if page in naive.cached:
                policy.remove([page])
                del naive.cached[page]
            case "use" if page not in naive.cached:  # only held pages are used
                policy.use([page])
                naive.uses[page] = naive.uses.get(page, 1) + 1
            case "evict" if naive.cached:
                evicted = policy.evict()
                assert evicted == naive.evict()
                policy.drop(evicted)  # as the ledger does, unless a duplicate takes its place
                policy.learn(evicted, evicted, 0)
            case "drop":
                policy.drop(page)
                policy.learn(page, page, 0)
                naive.drop(page)
        assert len(policy) == len(naive.cached)
        assert [p in policy for p in range(N_PAGES)] == [p in naive.cached for p in range(N_PAGES)]


def test_an_old_favourite_leaves_after_the_turnovers_that_its_uses_are_worth() -> None:
    policy, n_pages = LfuEviction(10), 10
    for page in range(n_pages):
        policy.learn(page, page, 0)
    policy.use([0] * 1000)
    policy.add(list(range(n_pages)))
    n_evicted = 0
    while (page := policy.evict()) != 0:
        policy.add([page])  # new content stands there now, and nobody reuses it
        n_evicted += 1
    assert n_evicted == (_MOST_USES - 1) * (n_pages - 1)


class Cache:
    """Sequences that come and go over one ledger: the part of a scheduler that matters for hit rates."""

    def __init__(self, policy: EvictionPolicy, n_pages: int) -> None:
        self.ledger = PageLedger(n_pages, policy)
        self.n_looked_up = 0

    def serve(self, prefix: int, n_prefix: int, n_own: int, unique: Iterator[int]) -> None:
        """One sequence: the pages of a shared prefix, then pages that no other sequence has."""
        ledger = self.ledger
        content = [(prefix * 1000 + index + 1) for index in range(n_prefix)]
        held = []
        for name in content:
            page = ledger.find(name, 0, b"")
            if page is None:
                break
            held.append(page)
        ledger.acquire(held)
        ledger.count_hits(held)
        self.n_looked_up += n_prefix
        for name in [*content[len(held) :], *(next(unique) for _ in range(n_own))]:
            page = ledger.allocate()
            assert page is not None
            ledger.seal(page, name, 0, b"", is_planned=False)
            held.append(page)
        ledger.release(held)
        ledger.take_changes()

    @property
    def hit_rate(self) -> float:
        """Pages of shared prefixes that were not computed again."""
        return self.ledger.statistics().hits / self.n_looked_up


def hit_rates(popularity: Callable[[random.Random, int], int], n_requests: int = 4000) -> dict[str, float]:
    """Hit rate of each policy under one load: `popularity(rng, request)` gives the prefix that a request starts with."""
    rates = {}
    for name in (EvictionName.LRU, EvictionName.LFU):
        rng, unique = random.Random(7), count(10**9)
        cache = Cache(make_eviction(name, 512), n_pages=512)
        for request in range(n_requests):
            cache.serve(popularity(rng, request), n_prefix=8, n_own=rng.randint(4, 24), unique=unique)
        rates[name.value] = cache.hit_rate
    return rates


def _zipf(rng: random.Random, n: int) -> int:
    return rng.choices(range(n), weights=[1 / (rank + 1) for rank in range(n)])[0]


def test_lfu_keeps_shared_prefixes_through_a_flood_of_single_prompts() -> None:
    rates = hit_rates(lambda rng, request: _zipf(rng, 48))  # measured: 0.773 against 0.654
    assert rates["lfu"] > rates["lru"] + 0.1, rates


def test_lfu_follows_a_change_of_what_is_popular() -> None:
    rates = hit_rates(lambda rng, request: _zipf(rng, 48) + 100 * (request // 500))  # measured: 0.714 against 0.644
    assert rates["lfu"] > rates["lru"] + 0.05, rates
