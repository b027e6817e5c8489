"""A workload through the cache of similar answers: what is found, and what is found wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from actors.cache_directory.similar.similar_answers import SimilarAnswer, SimilarAnswers
from actors.gateway.admission.similar_question import numbers_in
from ops.bench.semantic.workload import PosedQuestion

_BYTES = 1 << 30
_FOREVER_S = 1e9


class ThresholdFigures(msgspec.Struct, frozen=True):
    """What a workload found at one threshold: requests, and how many got the answer of the same text, of a similar one, and of
    one that asks something else."""

    threshold: float
    requests: int
    exact: int
    similar: int
    wrong: int

    @property
    def hit_rate(self) -> float:
        """The share of requests that were not computed."""
        return (self.exact + self.similar) / self.requests

    @property
    def wrong_rate(self) -> float:
        """The share of requests that got a wrong answer."""
        return self.wrong / self.requests


def replay(
    workload: Sequence[PosedQuestion], questions: Sequence[Sequence[str]], vectors: Mapping[str, np.ndarray], threshold: float
) -> ThresholdFigures:
    """Ask one after the other. An equal text is found first; then the most similar question with the same numbers. Answers are
    numbers of questions. `vectors`: float32 [dimensions] of each text."""
    answers, known = SimilarAnswers(_BYTES, _FOREVER_S, 0.0), dict[str, int]()
    n_exact = n_similar = n_wrong = 0
    for asked in workload:
        text = questions[asked.question][asked.words]
        circle = blake2b(repr(numbers_in(text)).encode(), digest_size=16).digest()
        if text in known:
            n_exact += 1
        elif (found := answers.find(circle, vectors[text], threshold, 1.0)) is not None:
            n_similar += 1
            n_wrong += int.from_bytes(found[0].ids, "little") != asked.question
        else:
            known[text] = asked.question
            ids = asked.question.to_bytes(4, "little")
            vector = vectors[text].astype("<f2").tobytes()
            answers.keep(SimilarAnswer(circle, vector, ids, "stop", b"", b"", 1.0), 1.0)
    return ThresholdFigures(threshold, len(workload), n_exact, n_similar, n_wrong)
