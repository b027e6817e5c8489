"""Made-up traces: conversations, questions about documents, bursts of single prompts, tenants of different habits.

All from a seed, with Poisson arrivals, and popularity after Zipf's law: the item of rank r is asked for in proportion to r **
-skew.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from itertools import accumulate, count

from actors.pages.traced_request import TracedRequest, runs_of

_ANSWER_PAGES_PER_S = 4.0  # 64 tokens a second


class _Pages:
    """New page numbers, and one request after the other."""

    def __init__(self) -> None:
        self._next = count()
        self.trace: list[TracedRequest] = []

    def new(self, n: int) -> list[int]:
        """Pages that no request had before."""
        return [next(self._next) for _ in range(n)]

    def ask(self, at_s: float, prompt: list[int], n_answer: int) -> list[int]:
        """A request for an answer of so many pages. Returns its pages, prompt and answer."""
        pages, took_s = [*prompt, *self.new(n_answer)], 0.05 + n_answer / _ANSWER_PAGES_PER_S
        self.trace.append(TracedRequest(int(at_s * 1e3), int(took_s * 1e3), len(prompt), runs_of(pages)))
        return pages


class _Zipf:
    """Draws ranks from 0 to n - 1."""

    def __init__(self, chance: random.Random, n: int, skew: float) -> None:
        self._chance, self._ranks = chance, range(n)
        self._weights = list(accumulate((rank + 1) ** -skew for rank in self._ranks))

    def draw(self) -> int:
        return self._chance.choices(self._ranks, cum_weights=self._weights)[0]


def _arrivals(chance: random.Random, per_s: float) -> Iterator[float]:
    at_s = 0.0
    while True:
        at_s += chance.expovariate(per_s)
        yield at_s


def chat(chance: random.Random, n_requests: int) -> list[TracedRequest]:
    """Conversations of one to thirty turns under four system prompts; a turn comes half a minute after the last answer."""
    pages, systems = _Pages(), _Zipf(chance, 4, 1.0)
    prefixes = [pages.new(12) for _ in range(4)]
    beginnings, turns = _arrivals(chance, 0.5), list[tuple[float, int, list[int]]]()
    begin_s = next(beginnings)
    for number in range(n_requests):
        if not turns or begin_s < turns[0][0]:
            at_s, history = begin_s, prefixes[systems.draw()]
            begin_s = next(beginnings)
        else:
            at_s, _, history = heapq.heappop(turns)
        n_answer = chance.randint(4, 24)
        held = pages.ask(at_s, [*history, *pages.new(chance.randint(1, 6))], n_answer)
        if chance.random() < 0.85:
            again_s = at_s + n_answer / _ANSWER_PAGES_PER_S + chance.expovariate(1 / 30)
            heapq.heappush(turns, (again_s, number, held))
    return pages.trace


def documents(chance: random.Random, n_requests: int) -> list[TracedRequest]:
    """Questions about one of 400 documents of 16 to 64 pages, some of them hot (skew 0.9), after one instruction."""
    pages, ranks = _Pages(), _Zipf(chance, 400, 0.9)
    instruction, at_s = pages.new(8), _arrivals(chance, 4.0)
    texts = [[*instruction, *pages.new(chance.randint(16, 64))] for _ in range(400)]
    for _ in range(n_requests):
        question = pages.new(chance.randint(1, 3))
        pages.ask(next(at_s), [*texts[ranks.draw()], *question], chance.randint(2, 8))
    return pages.trace


def burst(chance: random.Random, n_requests: int) -> list[TracedRequest]:
    """60 templates of 24 pages (skew 0.7), and every minute a job that reads 60 long texts once, one after the other."""
    pages, ranks = _Pages(), _Zipf(chance, 60, 0.7)
    templates, at_s, minute = [pages.new(24) for _ in range(60)], _arrivals(chance, 3.0), 0
    while len(pages.trace) < n_requests:
        now_s = next(at_s)
        pages.ask(now_s, [*templates[ranks.draw()], *pages.new(chance.randint(1, 4))], chance.randint(2, 8))
        if now_s // 60 > minute:
            minute = int(now_s // 60)
            for place in range(60):
                pages.ask(now_s + place * 0.2, pages.new(chance.randint(40, 80)), 1)
    return sorted(pages.trace, key=lambda request: request.at_ms)


def tenants(chance: random.Random, n_requests: int) -> list[TracedRequest]:
    """Eight tenants with 40 prefixes of 8 to 40 pages each: their skews go from 0.2 to 1.6, their rates from 1 to 8."""
    pages, at_s = _Pages(), _arrivals(chance, 4.0)
    ranks = [_Zipf(chance, 40, 0.2 + 0.2 * tenant) for tenant in range(8)]
    prefixes = [[pages.new(chance.randint(8, 40)) for _ in range(40)] for _ in range(8)]
    for _ in range(n_requests):
        tenant = chance.choices(range(8), weights=range(8, 0, -1))[0]
        prompt = [*prefixes[tenant][ranks[tenant].draw()], *pages.new(chance.randint(1, 12))]
        pages.ask(next(at_s), prompt, chance.randint(2, 12))
    return pages.trace


GENERATORS: dict[str, Callable[[random.Random, int], list[TracedRequest]]] = {
    "chat": chat,
    "documents": documents,
    "burst": burst,
    "tenants": tenants,
}


def generate(name: str, n_requests: int, seed: int) -> list[TracedRequest]:
    """A made-up trace. Raises: KeyError when there is none of this name."""
    return GENERATORS[name](random.Random(f"{name} {seed}"), n_requests)
