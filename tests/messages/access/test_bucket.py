"""A token bucket: it is never negative, gives no more than has come, and keeps its promise about when there is enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messages.access.bucket import Bucket
from tests.support.depth import examples

_STEPS = st.lists(st.tuples(st.sampled_from(("take", "give", "wait")), st.floats(0.0, 500.0)), max_size=50)


@given(st.integers(1, 1000), _STEPS, st.lists(st.floats(-1e6, 1e6), max_size=5))
@examples(100)
def test_neither_number_is_ever_negative_whatever_the_clock_does(per_min: int, steps: list, jumps: list[float]) -> None:
    bucket, now_s = Bucket(per_min, 0.0), 0.0
    for n, (kind, amount) in enumerate(steps):
        if kind == "wait":
            now_s += jumps[n % len(jumps)] if jumps else amount
            bucket.refill(now_s, per_min)
        else:
            (bucket.take if kind == "take" else bucket.give)(amount)
        assert 0.0 <= bucket.left <= per_min
        assert bucket.owed >= 0.0
        assert not (bucket.left and bucket.owed)


@given(st.integers(1, 1000), st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 50)), max_size=60))
@examples(100)
def test_what_is_taken_when_it_is_there_is_no_more_than_has_come(per_min: int, steps: list[tuple[float, int]]) -> None:
    bucket, now_s, taken = Bucket(per_min, 0.0), 0.0, 0
    for pause_s, amount in steps:
        now_s += pause_s
        bucket.refill(now_s, per_min)
        if bucket.has(amount):
            bucket.take(amount)
            taken += amount
    assert taken <= per_min + per_min * now_s / 60.0 + 1e-6


@given(st.integers(1, 1000), st.floats(0.0, 3000.0), st.floats(0.0, 1.0))
@examples(100)
def test_there_is_enough_after_the_time_that_it_says(per_min: int, used: float, share: float) -> None:
    bucket = Bucket(per_min, 0.0)
    bucket.take(used)
    amount = share * per_min
    wait_s = bucket.wait_s(amount)
    bucket.refill(wait_s * 0.9, per_min)
    assert bucket.has(amount) == (wait_s * 0.1 * per_min / 60.0 <= 1e-6)
    bucket.refill(wait_s, per_min)
    assert bucket.has(amount)


def test_without_a_limit_everything_is_there_and_a_new_limit_begins_full() -> None:
    bucket = Bucket(0, 0.0)
    bucket.take(1e9)
    assert (bucket.has(1e9), bucket.wait_s(1e9), bucket.owed) == (True, 0.0, 0.0)
    bucket.refill(1.0, 60)
    assert (bucket.left, bucket.per_min) == (60, 60)
    bucket.take(30)
    bucket.refill(1.0, 20)
    assert bucket.left == 20
