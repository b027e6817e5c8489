"""The frequency sketch: never below the true count, halved after its sample, seldom wrong about what was never asked for."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.sketch import _MOST, _SAMPLE, FrequencySketch


@given(st.lists(st.integers(0, 2**64 - 1).map(lambda number: number % 40 * 0x9E3779B97F4A7C15 % 2**64), max_size=150))
def test_an_estimate_is_never_below_the_true_count(requests: list[int]) -> None:
    sketch = FrequencySketch(16)  # ages after 160 requests
    for content_hash in requests:
        sketch.add(content_hash)
    for content_hash, count in Counter(requests).items():
        assert sketch.estimate(content_hash) >= min(count, _MOST)


def test_counts_are_halved_after_the_sample() -> None:
    sketch = FrequencySketch(16)
    for _ in range(9):
        sketch.add(7)
    assert sketch.estimate(7) == 9
    for number in range(_SAMPLE * 16 - 9):
        sketch.add(number << 20)
    assert sketch.estimate(7) in (4, 5), "eight counted requests, halved; the doorkeeper has forgotten the first"


def test_contents_that_were_never_asked_for_seldom_look_frequent() -> None:
    chance, sketch = random.Random(3), FrequencySketch(1024)
    for _ in range(4096):
        sketch.add(chance.getrandbits(64))
    n_wrong = sum(sketch.estimate(chance.getrandbits(64)) > 1 for _ in range(1000))
    assert n_wrong < 50
