"""Similar answers: circles, thresholds, bounds, age, forgetting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cache_directory.similar.similar_answers import SimilarAnswer, SimilarAnswers
from actors.pages.forgetting import Forgetting

ONE, OTHER = b"1" * 16, b"2" * 16
DIMENSIONS = 16
START_S = 1000.0


def vector(*numbers: float) -> np.ndarray:
    found = np.zeros(DIMENSIONS, np.float32)
    found[: len(numbers)] = numbers
    return found


def answer(
    at: np.ndarray,
    circle: bytes = ONE,
    ids: bytes = b"abcd",
    scope: bytes = b"",
    since_s: float = START_S + 1.0,
    cache_share: float = 1.0,
) -> SimilarAnswer:
    return SimilarAnswer(circle, at.astype("<f2").tobytes(), ids, "stop", scope, b"\1\0\0\0\2\0\0\0", since_s, cache_share)


@pytest.fixture
def kept() -> SimilarAnswers:
    return SimilarAnswers(1 << 20, 100.0, START_S)


def test_the_most_similar_question_has_the_answer(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0), ids=b"near"), START_S + 1.0)
    kept.keep(answer(vector(0.0, 1.0), ids=b"far "), START_S + 1.0)
    found = kept.find(ONE, vector(1.0, 0.2), 0.9, START_S + 2.0)
    assert found is not None
    assert (found[0].ids, found[1]) == (b"near", pytest.approx(1.0 / np.sqrt(1.04), abs=1e-3))
    assert kept.find(ONE, vector(1.0, 0.2), 0.99, START_S + 2.0) is None
    assert (kept.n_hits, kept.n_misses) == (1, 1)


def test_a_scope_with_a_part_leaves_the_answers_of_others() -> None:
    kept = SimilarAnswers(40_000, 100.0, START_S)
    kept.keep(answer(vector(1.0), scope=b"quiet"), START_S + 1.0)
    for number in range(1, 80):
        at = vector(0.0, np.cos(number), np.sin(number))
        kept.keep(answer(at, circle=OTHER, scope=b"flood", cache_share=0.5), START_S + 1.0)
        kept.find(OTHER, at, 0.99, START_S + 2.0)
    assert kept.find(ONE, vector(1.0), 0.9, START_S + 2.0) is not None
    assert kept.statistics(START_S + 2.0)["similar_share_evicted"] == kept.n_evicted > 0


def test_no_answer_leaves_its_circle(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0)), START_S + 1.0)
    assert kept.find(OTHER, vector(1.0), -1.0, START_S + 2.0) is None
    assert kept.find(ONE, vector(1.0), -1.0, START_S + 2.0) is not None


def test_vectors_of_another_length_are_not_compared(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0)), START_S + 1.0)
    assert kept.find(ONE, np.ones(3, np.float32), -1.0, START_S + 2.0) is None
    kept.keep(answer(np.ones(3, np.float32)), START_S + 1.0)
    assert len(kept) == 1


@pytest.mark.parametrize("wrong", [np.empty(0, np.float32), np.full(DIMENSIONS, np.nan, np.float32)])
def test_what_is_no_vector_is_not_kept(kept: SimilarAnswers, wrong: np.ndarray) -> None:
    kept.keep(answer(wrong), START_S + 1.0)
    assert len(kept) == 0


def test_a_question_that_is_no_vector_finds_nothing(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0)), START_S + 1.0)
    assert kept.find(ONE, np.full(DIMENSIONS, np.nan, np.float32), -1.0, START_S + 2.0) is None


def test_an_old_answer_is_passed_over(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0), ids=b"old "), START_S + 1.0)
    kept.keep(answer(vector(1.0, 0.1), ids=b"new ", since_s=START_S + 60.0), START_S + 1.0)
    found = kept.find(ONE, vector(1.0), 0.9, START_S + 110.0)
    assert found is not None
    assert (found[0].ids, len(kept)) == (b"new ", 1)


def test_the_answer_to_the_same_text_is_replaced(kept: SimilarAnswers) -> None:
    for ids in (b"1111", b"2222"):
        kept.keep(answer(vector(0.3, 0.4, 0.5), ids=ids), START_S + 1.0)
    found = kept.find(ONE, vector(0.3, 0.4, 0.5), 0.9, START_S + 2.0)
    assert found is not None
    assert (found[0].ids, len(kept)) == (b"2222", 1)


def test_what_was_not_found_for_longest_leaves_first() -> None:
    size = answer(vector(1.0)).n_bytes
    kept = SimilarAnswers(10 * size, 100.0, START_S)
    for place in range(10):
        kept.keep(answer(np.eye(DIMENSIONS, dtype=np.float32)[place]), START_S + 1.0)
    assert kept.find(ONE, vector(1.0), 0.9, START_S + 2.0) is not None
    kept.keep(answer(np.eye(DIMENSIONS, dtype=np.float32)[12]), START_S + 1.0)
    assert kept.find(ONE, vector(1.0), 0.9, START_S + 2.0) is not None
    assert kept.find(ONE, vector(0.0, 1.0), 0.9, START_S + 2.0) is None
    assert (kept.n_evicted, len(kept), kept.n_bytes) == (1, 10, 10 * size)


def test_an_answer_that_takes_much_of_the_memory_is_not_kept() -> None:
    kept = SimilarAnswers(10_000, 100.0, START_S)
    kept.keep(answer(vector(1.0), ids=bytes(1000)), START_S + 1.0)
    assert len(kept) == 0


def test_a_reset_forgets_what_meets_all_conditions(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0), scope=b"me"), START_S + 1.0)
    kept.keep(answer(vector(0.0, 1.0), scope=b"you"), START_S + 1.0)
    now_s = START_S + 50.0
    assert kept.forget(Forgetting(older_than_s=60.0), now_s) == 0
    assert kept.forget(Forgetting(tokens=b"\1\0\0\0\3\0\0\0"), now_s) == 0
    assert kept.forget(Forgetting(scope=b"me", tokens=b"\1\0\0\0"), now_s) == 1
    assert kept.forget(Forgetting(), now_s) == 1
    assert (len(kept), kept.n_bytes, kept.find(ONE, vector(1.0), -1.0, now_s)) == (0, 0, None)


@pytest.mark.parametrize(("began_s", "n_kept"), [(START_S + 10.0, 0), (START_S + 11.0, 1)])
def test_an_answer_that_was_begun_before_a_reset_is_not_kept(kept: SimilarAnswers, began_s: float, n_kept: int) -> None:
    kept.forget(Forgetting(), START_S + 10.0)
    kept.keep(answer(vector(1.0), since_s=START_S + 12.0), began_s)
    assert len(kept) == n_kept


def test_an_answer_that_was_begun_before_this_process_is_not_kept(kept: SimilarAnswers) -> None:
    kept.keep(answer(vector(1.0)), START_S - 1.0)
    assert len(kept) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([ONE, OTHER]), st.sampled_from(["keep", "find", "forget"])), max_size=60
    )
)
def test_the_counts_are_those_of_what_is_kept(steps: list[tuple[int, bytes, str]]) -> None:
    kept, rng = SimilarAnswers(12_000, 30.0, START_S), np.random.default_rng(1)
    points = rng.standard_normal((21, DIMENSIONS)).astype(np.float32)
    for at, (point, circle, what) in enumerate(steps):
        now_s = START_S + 1.0 + at
        match what:
            case "keep":
                kept.keep(answer(points[point], circle, since_s=now_s), now_s)
            case "find":
                found = kept.find(circle, points[point], 0.999, now_s)
                assert found is None or found[0].circle == circle
            case _:
                kept.forget(Forgetting(older_than_s=float(point)), now_s)
        assert kept.n_bytes == sum(one.n_bytes for one in kept) <= 12_000
        assert len(kept) == len([*kept])


def test_answers_whose_time_is_over_do_not_count(kept: SimilarAnswers) -> None:
    for number, since_s in enumerate((START_S + 5.0, START_S + 1.0, START_S + 3.0)):
        kept.keep(answer(np.eye(DIMENSIONS, dtype=np.float32)[number], since_s=since_s), START_S + 1.0)
    assert kept.oldest_s == START_S + 1.0
    assert kept.statistics(START_S + 103.0)["similar_answers"] == 1
    assert kept.oldest_s == START_S + 5.0
    assert kept.statistics(START_S + 105.0)["similar_answers"] == 0
