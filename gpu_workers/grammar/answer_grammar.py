"""The grammar of one answer: the tokens of the answer so far, and which may follow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import cached_property

from llguidance import LLMatcher

_MOST_FORCED = 32  # tokens that are reported to the scheduler in one message
_REASON_CHARACTERS = 500


class AnswerGrammar:
    """Follows one answer. Not thread-safe."""

    def __init__(self, beginning: Future[LLMatcher], end_tokens: list[int], n_prompt: int, generated: Sequence[int]) -> None:
        """beginning: a matcher at the beginning of the grammar, waited for when it is needed first. end_tokens: which end the
        answer. generated: tokens of the answer that are known already."""
        self._beginning, self._generated = beginning, generated
        self.end_tokens = end_tokens
        self.n_consumed = n_prompt + len(generated)  # tokens of the sequence that the matcher knows, its prompt included
        self._has_ended = False

    @cached_property
    def matcher(self) -> LLMatcher:
        """The matcher after the tokens so far."""
        matcher = self._beginning.result().deep_copy()
        for token in self._generated:
            self._consume(matcher, token)
        return matcher

    @property
    def is_over(self) -> bool:
        """True if nothing but an end token may follow: the answer has ended, or failed."""
        return self._has_ended or self.matcher.is_error()

    @property
    def failure(self) -> str:
        """Why the answer cannot go on; "" if it can, or has ended. A limit of the library that a grammar has met is met
        again at the same token by whoever follows the answer."""
        reason, _, _ = self.matcher.get_error().partition("\n")  # lines about the parser's state follow
        return reason[:_REASON_CHARACTERS] if self.matcher.is_error() else ""

    def consume(self, tokens: Sequence[int]) -> None:
        """Go on by sampled tokens. An end token, or one that the grammar does not allow, ends the answer."""
        self.n_consumed += len(tokens)
        for token in tokens:
            self._consume(self.matcher, token)

    def possible(self, drafts: list[int]) -> list[int]:
        """The drafts up to the first one that the grammar does not allow."""
        return drafts[: self.matcher.validate_tokens(drafts)] if drafts and not self.is_over else []

    def forced(self) -> list[int]:
        """The next tokens that can be no others: masks allow each of them alone. The first ones, if there are many."""
        return [] if self.is_over else self.matcher.compute_ff_tokens()[:_MOST_FORCED]

    def _consume(self, matcher: LLMatcher, token: int) -> None:
        if not self._has_ended and not matcher.is_error():
            is_taken = token not in self.end_tokens and matcher.try_consume_tokens([token]) == 1
            self._has_ended = not is_taken and not matcher.is_error()
