"""The workload with paraphrases, and what a replay counts."""

from __future__ import annotations

import numpy as np
import pytest

from ops.bench.semantic.index_speed import index_figures
from ops.bench.semantic.replay import ThresholdFigures, replay
from ops.bench.semantic.workload import PosedQuestion, made_up_texts, read_questions, repeated_workload

QUESTIONS = [["a", "A"], ["b", "B"]]
VECTORS = {
    text: np.array(vector, np.float32)
    for text, vector in {"a": (1.0, 0.0), "A": (0.99, 0.14), "b": (0.9, 0.44), "B": (0.0, 1.0)}.items()
}


def test_each_question_is_put_in_several_words_and_none_twice() -> None:
    questions = read_questions()
    texts = [text for words in questions for text in words]
    assert len(questions) > 50
    assert {len(words) for words in questions} == {4}
    assert len(set(texts)) == len(texts)
    known, other = made_up_texts(1000)
    assert len(set(known)) == 1000
    assert not set(known) & set(other)


def test_the_same_seed_asks_the_same() -> None:
    assert repeated_workload(QUESTIONS, 50, 1) == repeated_workload(QUESTIONS, 50, 1)
    assert repeated_workload(QUESTIONS, 50, 1) != repeated_workload(QUESTIONS, 50, 2)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.98, ThresholdFigures(0.98, 5, 1, 1, 0)),  # A is like a, b is not, B is nothing like b
        (0.85, ThresholdFigures(0.85, 5, 1, 2, 1)),  # b is taken for a
        (1.1, ThresholdFigures(1.1, 5, 1, 0, 0)),
    ],
)
def test_hits_and_wrong_answers_are_counted(threshold: float, expected: ThresholdFigures) -> None:
    workload = [PosedQuestion(0, 0), PosedQuestion(0, 0), PosedQuestion(0, 1), PosedQuestion(1, 0), PosedQuestion(1, 1)]
    assert replay(workload, QUESTIONS, VECTORS, threshold) == expected


def test_the_index_is_compared_with_all_vectors() -> None:
    vectors = np.random.default_rng(1).standard_normal((100, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = index_figures("graph", vectors, vectors[:20], 16)
    assert (found.entries, found.recall) == (100, 1.0)
