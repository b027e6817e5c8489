"""Ghosts: contents that come back are counted, old ones are forgotten, a large cache is sampled."""

from __future__ import annotations

import random

from actors.pages.eviction.ghosts import Ghosts


def test_a_content_that_comes_back_is_counted_once_unless_it_is_too_old() -> None:
    ghosts = Ghosts(2)
    for content_hash in (1, 2, 3):
        ghosts.evicted(content_hash)
    for content_hash in (1, 2, 2, 4):
        ghosts.computed(content_hash)
    assert ghosts.hits == 1
    ghosts.kept(3)
    ghosts.computed(3)
    assert ghosts.hits == 1


def test_the_sample_of_a_large_cache_stands_for_all() -> None:
    chance, ghosts = random.Random(5), Ghosts(100_000)
    hashes = [chance.getrandbits(64) for _ in range(20_000)]
    for content_hash in hashes:
        ghosts.evicted(content_hash)
    for content_hash in hashes:
        ghosts.computed(content_hash)
    assert abs(ghosts.hits - 20_000) < 2_000
    assert len(ghosts._hashes) == 0
