"""Which answers are kept for how long, and what a reset forgets."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.answers.answer_cache import AnswerCache
from actors.pages.forgetting import Forgetting
from messages.caches.equal import KeptAnswer, KeptSequence


def key_of(number: int) -> bytes:
    return blake2b(number.to_bytes(4, "little"), digest_size=16).digest()


def ids_of(*tokens: int) -> bytes:
    return np.array(tokens, "<i4").tobytes()


def answer(
    number: int,
    *,
    since_s: float = 1.0,
    began_s: float = 0.0,
    prompt: bytes = ids_of(1, 2),
    scope: bytes = b"",
    n_tokens: int = 3,
    model: int = 0,
    cache_share: float = 1.0,
) -> KeptAnswer:
    sequence = KeptSequence(ids=ids_of(*range(n_tokens)), reason="length", n_cached=2)
    return KeptAnswer(
        sequences=(sequence,),
        key=key_of(number),
        scope=scope,
        starts=(prompt[:1024],),
        began_s=began_s,
        since_s=since_s,
        model=model,
        cache_share=cache_share,
    )


def test_a_scope_with_a_part_leaves_the_answers_of_others() -> None:
    cache = AnswerCache(100_000, 100.0)
    cache.keep(answer(0, scope=b"quiet", began_s=1.0))
    for number in range(1, 400):
        cache.find(key_of(number), 2.0)  # it is asked for more often than the other one
        cache.keep(answer(number, scope=b"flood", began_s=1.0, n_tokens=100, cache_share=0.5))
    assert cache.find(key_of(0), 2.0) is not None
    assert cache.n_share_evicted == cache.n_evicted > 0
    assert cache.statistics(2.0)["answer_share_evicted"] == cache.n_evicted


def test_an_answer_is_found_until_its_time_is_over() -> None:
    cache = AnswerCache(1 << 20, 10.0)
    assert cache.find(key_of(0), 0.0) is None
    assert cache.keep(answer(0))
    assert cache.has(key_of(0), 10.9)
    assert cache.find(key_of(0), 10.9) == answer(0)
    assert not cache.has(key_of(0), 11.0)
    assert cache.find(key_of(0), 11.0) is None
    assert (len(cache), cache.n_bytes, cache.n_hits, cache.n_misses, cache.n_tokens_saved) == (0, 0, 1, 2, 3)


def test_an_older_answer_than_is_wanted_is_not_found_and_stays_for_others() -> None:
    cache = AnswerCache(1 << 20, 100.0)
    assert cache.keep(answer(0, since_s=5.0))
    assert not cache.has(key_of(0), 12.0, 6.0)
    assert cache.find(key_of(0), 12.0, 6.0) is None
    assert cache.has(key_of(0), 12.0, 7.0)
    assert cache.find(key_of(0), 12.0, 7.0) == cache.find(key_of(0), 12.0) == answer(0, since_s=5.0)
    assert (cache.n_hits, cache.n_misses) == (2, 1)


def test_a_newer_answer_takes_the_place_of_an_older_one() -> None:
    cache = AnswerCache(1 << 20, 10.0)
    assert cache.keep(answer(0, since_s=5.0))
    assert not cache.keep(answer(0, since_s=4.0, n_tokens=4))
    assert cache.keep(answer(0, since_s=6.0, n_tokens=5))
    assert cache.find(key_of(0), 7.0) == answer(0, since_s=6.0, n_tokens=5)
    assert len(cache) == 1


def test_answers_that_are_asked_for_often_stay_when_others_come_once() -> None:
    cache = AnswerCache(100_000, 100.0)
    for _ in range(3):
        for number in range(40):
            if cache.find(key_of(number), 2.0) is None:
                cache.keep(answer(number))
    for number in range(1000, 3000):
        assert cache.find(key_of(number), 2.0) is None
        cache.keep(answer(number))
        assert cache.n_bytes <= 100_000
    assert sum(cache.has(key_of(number), 2.0) for number in range(40)) >= 38
    assert cache.n_evicted > 1000


def test_answers_that_other_processes_find_stay_too() -> None:
    cache = AnswerCache(100_000, 100.0)
    for number in range(40):
        cache.keep(answer(number))
    for _ in range(3):
        for number in range(40):
            cache.used(key_of(number))
    for number in range(1000, 3000):
        cache.keep(answer(number))
    assert sum(cache.has(key_of(number), 2.0) for number in range(40)) >= 38


def test_answers_whose_time_is_over_do_not_count() -> None:
    cache = AnswerCache(1 << 20, 10.0)
    for number, since_s in enumerate((5.0, 1.0, 3.0)):  # as a file has them: not by age
        cache.keep(answer(number, since_s=since_s))
    assert cache.oldest_s == 1.0
    cache.keep(answer(1, since_s=7.0))
    assert cache.oldest_s == 3.0
    assert cache.statistics(12.9)["answers_kept"] == 3
    changes = cache.n_changes
    assert cache.statistics(13.0)["answers_kept"] == 2
    assert cache.n_changes == changes + 1, "the file is written without it"
    assert (cache.oldest_s, cache.statistics(16.9)["answer_oldest_s"]) == (5.0, 9.9)
    assert cache.statistics(17.0)["answers_kept"] == 0
    assert (cache.oldest_s, cache.n_bytes) == (0.0, 0)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(1.0, 40.0), st.booleans()), max_size=200))
def test_the_oldest_answer_is_known_whatever_leaves(steps: list[tuple[int, float, bool]]) -> None:
    cache, now_s = AnswerCache(20_000, 20.0), 40.0
    for number, since_s, is_forgotten in steps:
        cache.keep(answer(number, since_s=since_s))
        if is_forgotten:
            cache.forget(Forgetting(older_than_s=now_s - since_s), now_s)
            cache.reset_s = -1.0
        assert cache.oldest_s == min((one.since_s for one in cache), default=0.0)
    fresh = [one for one in cache if cache.is_fresh(one, now_s)]
    cache.drop_old(now_s)
    assert [*cache] == fresh


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    small = AnswerCache(4_096, 10.0)
    assert not small.keep(answer(0, n_tokens=100))
    assert len(small) == 0


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (Forgetting(), 0),
        (Forgetting(scope=b"me"), 3),
        (Forgetting(scope=b""), 1),
        (Forgetting(tokens=ids_of(1)), 1),
        (Forgetting(tokens=ids_of(1, 3)), 3),
        (Forgetting(tokens=ids_of(1, 3, 9)), 4),
        (Forgetting(older_than_s=5.0), 2),
        (Forgetting(older_than_s=50.0), 4),
        (Forgetting(model=0), 1),
        (Forgetting(model=1), 3),
        (Forgetting(model=1, scope=b"me"), 4),
    ],
)
def test_answers_are_forgotten_by_caller_prefix_age_and_model(wanted: Forgetting, left: int) -> None:
    cache = AnswerCache(1 << 20, 100.0)
    cache.keep(answer(0, since_s=9.0))
    cache.keep(answer(1, since_s=1.0, prompt=ids_of(1, 3)))
    cache.keep(answer(2, since_s=9.0, prompt=ids_of(2), model=1))
    cache.keep(answer(3, since_s=1.0, scope=b"me"))
    assert cache.forget(wanted, 10.0) == 4 - left
    assert (len(cache), cache.n_bytes > 0) == (left, left > 0)


def test_the_answer_to_a_request_that_ran_when_caches_were_reset_is_not_kept() -> None:
    cache = AnswerCache(1 << 20, 10.0)
    cache.forget(Forgetting(), 5.0)
    assert not cache.keep(answer(0, began_s=5.0, since_s=6.0))
    assert cache.keep(answer(0, began_s=5.1, since_s=6.0))


def test_an_answer_of_the_time_before_this_process_is_kept_only_if_it_is_restored() -> None:
    cache = AnswerCache(1 << 20, 10.0, reset_s=5.0)
    assert not cache.keep(answer(0, began_s=4.0))
    assert cache.restore(answer(0, began_s=4.0))


def test_of_a_prefix_that_is_longer_than_what_is_kept_of_a_prompt_the_beginning_counts() -> None:
    cache = AnswerCache(1 << 20, 10.0)
    cache.keep(answer(0, prompt=ids_of(*range(300))))
    assert cache.forget(Forgetting(tokens=ids_of(*range(299), 5)), 1.0) == 1
