"""Replays find what there is to find: pages of equal prefixes, in both caches, and nothing that was overwritten."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from actors.pages.eviction.lru import LruEviction
from actors.pages.traced_request import TracedRequest
from ops.bench.cache.generated import GENERATORS, generate
from ops.bench.cache.replay import LedgerCache, PageCache, findable_rate, replay
from ops.bench.cache.trace_file import hashed
from ops.bench.cache.vllm_rule import VllmRule


def _ledger(n_pages: int) -> PageCache:
    return LedgerCache(n_pages, LruEviction(n_pages))


_CACHES = pytest.mark.parametrize("make", [_ledger, VllmRule])


def request(at_ms: int, prompt: list[int], took_ms: int = 1) -> TracedRequest:
    """A request without full pages of an answer."""
    return TracedRequest(at_ms, took_ms, len(prompt), [(number, 1) for number in prompt])


@_CACHES
def test_equal_prefixes_are_found_while_held_and_afterwards(make: Callable[[int], PageCache]) -> None:
    trace = [request(0, [1, 2, 3], took_ms=10), request(5, [1, 2, 4]), request(50, [1, 2, 3, 5]), request(60, [9, 2, 3])]
    result = replay(hashed(trace), make(32))
    assert (result.hits, result.prompt_pages) == (2 + 3, 13)


@_CACHES
def test_the_tail_of_the_oldest_sequence_is_overwritten_first(make: Callable[[int], PageCache]) -> None:
    fill = [request(0, [1, 2, 3]), request(10, [4, 5, 6])]  # each leaves three pages, and one partly filled
    probe = [request(20, [7, 8]), request(30, [1, 2, 3])]
    cache = make(8)
    assert replay(hashed(fill + probe), cache).hits < 3
    assert replay(hashed([*fill, request(30, [1, 2, 3])]), make(8)).hits == 3


@_CACHES
def test_requests_wait_for_room_and_too_large_ones_are_refused(make: Callable[[int], PageCache]) -> None:
    together = [request(0, [1, 2, 3], took_ms=100), request(1, [4, 5, 6], took_ms=100), request(2, [1, 2, 3])]
    assert replay(hashed(together), make(5)).hits < 3
    with pytest.raises(ValueError, match="expected at least 4, as one request needs"):
        replay(hashed(together), make(3))


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_traces_are_the_same_for_a_seed_and_fit_together(name: str) -> None:
    trace = generate(name, 120, 3)
    assert trace == generate(name, 120, 3) != generate(name, 120, 4)
    assert len(trace) >= 120
    assert [one.at_ms for one in trace] == sorted(one.at_ms for one in trace)
    assert all(one.prompt_pages <= len(one.numbers) for one in trace)
    everything = 1 + max(len({number for one in trace for number in one.numbers}), 1) + 60 * 200
    roomy = replay(hashed(trace), LedgerCache(everything, LruEviction(everything)))
    assert roomy.hit_rate == findable_rate(hashed(trace)) > 0.0, "without evictions every repeated page is found"


def test_only_the_rule_of_vllm_overwrites_content_while_empty_pages_wait() -> None:
    chance = random.Random(2)
    trace = [request(10 * number, [chance.randrange(6), 10 + chance.randrange(3)]) for number in range(300)]
    hits = [replay(hashed(trace), make(64)).hits for make in (_ledger, VllmRule)]
    assert hits[0] == 600 - 6 - 18, "every page but the first of each content"
    assert hits[1] < hits[0]
