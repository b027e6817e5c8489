"""The answers for equal requests and those for similar questions as one set, for the file and for resets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from actors.cache_directory.similar.similar_answers import SimilarAnswer, SimilarAnswers
from actors.pages.answers.answer_cache import AnswerCache, is_answer_wanted
from actors.pages.forgetting import Forgetting
from messages.caches.equal import KeptAnswer

Answer = KeptAnswer | SimilarAnswer


class ForgottenCount(NamedTuple):
    """How many answers were forgotten, for equal requests and for similar questions."""

    equal: int
    similar: int


def _nothing(_: KeptAnswer) -> None:
    """Nobody is told."""


def is_wanted(answer: Answer, wanted: Forgetting, now_s: float) -> bool:
    """True if an answer of any kind is to be forgotten."""
    if isinstance(answer, KeptAnswer):
        return is_answer_wanted(answer, wanted, now_s)
    return answer.is_wanted(wanted, now_s)


class AllAnswers:
    """`equal`: for equal requests; `similar`: for similar questions, None: none are kept."""

    def __init__(self, equal: AnswerCache, similar: SimilarAnswers | None) -> None:
        self.equal, self.similar = equal, similar
        self.on_restored: Callable[[KeptAnswer], None] = _nothing

    def __iter__(self) -> Iterator[Answer]:
        """All answers; of each kind those that leave first at the front."""
        yield from self.equal
        yield from self.similar or ()

    @property
    def n_changes(self) -> int:
        """Changes of what is kept."""
        return self.equal.n_changes + (0 if self.similar is None else self.similar.n_changes)

    def is_fresh(self, answer: Answer, now_s: float) -> bool:
        """True if an answer is of a kind that is kept, and not too old to be given."""
        if isinstance(answer, KeptAnswer):
            return self.equal.is_fresh(answer, now_s)
        return self.similar is not None and self.similar.is_fresh(answer, now_s)

    def restore(self, answer: Answer) -> None:
        """Keep an answer of the file."""
        if isinstance(answer, KeptAnswer):
            if self.equal.restore(answer):
                self.on_restored(answer)
        elif self.similar is not None:
            self.similar.restore(answer)

    def forget(self, wanted: Forgetting, now_s: float) -> ForgottenCount:
        """Drop the answers that are wanted; returns how many. Of requests that run now, none is kept."""
        n_similar = 0 if self.similar is None else self.similar.forget(wanted, now_s)
        return ForgottenCount(self.equal.forget(wanted, now_s), n_similar)
