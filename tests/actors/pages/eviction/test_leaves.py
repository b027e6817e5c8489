"""FIFO and W-TinyLFU beside naive models, on random trees of contents whose pages are computed, given back, reused, evicted."""

from __future__ import annotations

from abc import ABC, abstractmethod

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.chain_root import ROOT
from actors.pages.eviction.fifo import FifoEviction
from actors.pages.eviction.policy import EvictionPolicy
from actors.pages.eviction.sketch import FrequencySketch
from actors.pages.eviction.w_tinylfu import WTinyLfuEviction
from tests.support.depth import examples

N_PAGES = 12
_STEPS = st.sampled_from(["compute", "compute", "continue", "give back", "reuse", "evict"])
_HISTORIES = st.lists(st.tuples(_STEPS, st.integers(0, 100)), min_size=10, max_size=120)


class NaivePolicy(ABC):
    """Contents and cached pages, looked at one by one."""

    def __init__(self) -> None:
        self.content_of: dict[int, tuple[int, int]] = {}
        self.cached: list[int] = []  # the page that was given back first comes first

    def is_leaf(self, page: int) -> bool:
        """True if no cached page continues this one."""
        return all(self.content_of[other][1] != self.content_of[page][0] for other in self.cached)

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        self.content_of[page] = content_hash, parent

    def add(self, page: int) -> None:
        self.cached.append(page)

    def remove(self, page: int) -> None:
        self.cached.remove(page)

    def use(self, page: int) -> None:
        """A policy that counts uses counts them here."""
        assert page in self.content_of

    @abstractmethod
    def evict(self) -> int:
        """The page to evict; `forget` follows."""

    def forget(self, page: int) -> None:
        self.remove(page)
        del self.content_of[page]


class NaiveFifo(NaivePolicy):
    """The leaf that was computed first."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: list[int] = []

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        super().learn(page, content_hash, parent)
        self.computed.append(page)

    def evict(self) -> int:
        return next(page for page in self.computed if page in self.cached and self.is_leaf(page))

    def forget(self, page: int) -> None:
        super().forget(page)
        self.computed.remove(page)


class NaiveWTinyLfu(NaivePolicy):
    """Three lists of all cached pages, and a fixed share of the window."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.sketch = share, FrequencySketch(N_PAGES)
        self.part_of: dict[int, str] = {}
        self.parts: dict[str, list[int]] = {"window": [], "probation": [], "protected": []}
        self.waiting: set[int] = set()  # pages of a list that are passed over until their continuations have gone

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        super().learn(page, content_hash, parent)
        self.part_of[page] = "window"
        self.sketch.add(content_hash)

    def use(self, page: int) -> None:
        self.sketch.add(self.content_of[page][0])
        if self.part_of[page] == "probation":
            self.part_of[page] = "protected"

    def add(self, page: int) -> None:
        super().add(page)
        self.parts[self.part_of[page]].append(page)

    def remove(self, page: int) -> None:
        super().remove(page)
        self.parts[self.part_of[page]].remove(page)
        self.waiting.discard(page)
        for other in list(self.waiting):
            if self.is_leaf(other):
                self.waiting.discard(other)
                part = self.parts[self.part_of[other]]
                part.remove(other)
                part.insert(0, other)

    def queue(self, part: str) -> list[int]:
        return [page for page in self.parts[part] if page not in self.waiting]

    def move(self, page: int, part: str) -> None:
        self.parts[self.part_of[page]].remove(page)
        self.parts[part].append(page)
        self.part_of[page] = part

    def evict(self) -> int:
        n, limit = len(self.cached), max(self.share * len(self.cached), 1)
        for _ in range(4):
            if self.queue("window") and len(self.parts["window"]) > n - 0.5 * (n - limit):
                self.move(self.queue("window")[0], "probation")
        for _ in range(2):
            n_main = n - len(self.parts["window"])
            if self.queue("protected") and len(self.parts["protected"]) > 0.8 * n_main:
                self.move(self.queue("protected")[0], "probation")
        while True:
            window, main = self.queue("window"), self.queue("probation") or self.queue("protected")
            first = (main or window)[0]
            if not self.is_leaf(first):
                self.waiting.add(first)
            elif not main or not window or len(self.parts["window"]) <= limit:
                return first
            elif not self.is_leaf(window[0]):
                self.move(window[0], "probation")
            elif self.estimate(window[0]) < self.estimate(first):
                return window[0]
            else:
                self.move(window[0], "probation")
                return first

    def estimate(self, page: int) -> int:
        return self.sketch.estimate(self.content_of[page][0])


def compare(policy: EvictionPolicy, naive: NaivePolicy, steps: list[tuple[str, int]]) -> None:
    """Do the same with both: both evict the same pages."""
    held: dict[int, list[int]] = {}  # chains of pages by their last page
    next_hash = 1 << 40
    for step, draw in steps:
        free = [page for page in range(N_PAGES) if page not in naive.content_of]
        chains = sorted(held)
        if (step == "compute" and free) or (step == "continue" and free and chains):
            before = held.pop(chains[draw % len(chains)]) if step == "continue" else []
            page, parent = free[draw % len(free)], naive.content_of[before[-1]][0] if before else ROOT
            next_hash = next_hash * 6364136223846793005 % 2**61 | 1
            policy.learn(page, next_hash, parent)
            naive.learn(page, next_hash, parent)
            held[page] = [*before, page]
        elif step == "give back" and chains:
            pages = held.pop(chains[draw % len(chains)])[::-1]
            pages = [page for page in pages if not any(page in others for others in held.values())]
            policy.add(pages)
            for page in pages:
                naive.add(page)
        elif step == "reuse" and naive.cached:
            chain = _chain(naive, naive.cached[draw % len(naive.cached)])
            policy.remove([page for page in chain if page in naive.cached])
            for page in [page for page in chain if page in naive.cached]:
                naive.remove(page)
            policy.use(chain)
            for page in reversed(chain):
                naive.use(page)
            held[chain[-1]] = chain
        elif step == "evict" and naive.cached:
            page = policy.evict()
            assert page == naive.evict()
            policy.drop(page)
            naive.forget(page)
        assert len(policy) == len(naive.cached)
        assert [page in policy for page in range(N_PAGES)] == [page in naive.cached for page in range(N_PAGES)]


def _chain(naive: NaivePolicy, page: int) -> list[int]:
    """The pages of a prefix, from its first page to this one."""
    page_of = {content_hash: page for page, (content_hash, _) in naive.content_of.items()}
    chain = [page]
    while (parent := naive.content_of[chain[0]][1]) != ROOT:
        chain.insert(0, page_of[parent])
    return chain


@given(steps=_HISTORIES)
@examples(300)
def test_fifo_equals_a_naive_model(steps: list[tuple[str, int]]) -> None:
    compare(FifoEviction(N_PAGES), NaiveFifo(), steps)


@given(steps=_HISTORIES, share=st.sampled_from([0.05, 0.3, 0.6, 1.0]))
@examples(300)
def test_w_tinylfu_equals_a_naive_model(steps: list[tuple[str, int]], share: float) -> None:
    compare(WTinyLfuEviction(N_PAGES, share), NaiveWTinyLfu(share), steps)
