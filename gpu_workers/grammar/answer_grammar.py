"""The grammar of one answer: the tokens of the answer so far, and which may follow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from llguidance import LLMatcher

from gpu_workers.grammar.thought import Thought
from messages.generation.grammar import BoundedThinking

_MOST_FORCED = 32  # tokens that are reported to the scheduler in one message
_REASON_CHARACTERS = 500


@dataclass(frozen=True)
class AnswerBeginning:
    """What an answer begins with. Matchers stand at the beginning of their grammars, and are waited for when needed."""

    matcher: Future[LLMatcher] | None  # None: any text may follow, apart from the bound of its reasoning
    thinking: BoundedThinking | None = None
    finder: Future[LLMatcher] | None = None  # see `Thought`; with `thinking`


class AnswerGrammar:
    """Follows one answer. Not thread-safe."""

    def __init__(self, beginning: AnswerBeginning, end_tokens: list[int], n_prompt: int, generated: Sequence[int]) -> None:
        """end_tokens: which end the answer. generated: tokens of the answer that are known already."""
        self._beginning, self._generated = beginning, generated
        self.end_tokens = end_tokens
        self.n_consumed = n_prompt + len(generated)  # tokens of the sequence that the matcher knows, its prompt included
        self._has_ended = False

    @property
    def is_free(self) -> bool:
        """True if any token may follow where no one is forced."""
        return self._beginning.matcher is None

    @cached_property
    def matcher(self) -> LLMatcher:
        """The matcher after the tokens so far, of an answer that is not free."""
        assert self._beginning.matcher is not None, "the answer is free"
        matcher = self._beginning.matcher.result().deep_copy()
        for token in self._generated:
            self._consume(matcher, token)
        return matcher

    @cached_property
    def _thought(self) -> Thought | None:
        if self._beginning.thinking is None or self._beginning.finder is None:
            return None
        thought = Thought(self._beginning.thinking, self._beginning.finder.result().deep_copy())
        for token in self._generated:
            thought.consume(token)
        return thought

    @property
    def is_over(self) -> bool:
        """True if nothing but an end token may follow: the answer has ended, or failed."""
        return not self.is_free and (self._has_ended or self.matcher.is_error())

    @property
    def failure(self) -> str:
        """Why the answer cannot go on; "" if it can, or has ended. Where a grammar exceeds a limit of the library, every
        rank that follows the answer finds that at the same token."""
        if self.is_free or not self.matcher.is_error():
            return ""
        reason, _, _ = self.matcher.get_error().partition("\n")  # lines about the parser's state follow
        return reason[:_REASON_CHARACTERS]

    def consume(self, tokens: Sequence[int]) -> None:
        """Go on by sampled tokens. An end token, or one that the grammar does not allow, ends the answer."""
        self.n_consumed += len(tokens)
        matcher, thought = None if self.is_free else self.matcher, self._thought
        for token in tokens:
            if matcher is not None:
                self._consume(matcher, token)
            if thought is not None:
                thought.consume(token)

    def possible(self, drafts: list[int]) -> list[int]:
        """The drafts up to the first one that the grammar does not allow."""
        if self.is_free:
            return drafts
        return drafts[: self.matcher.validate_tokens(drafts)] if drafts and not self.is_over else []

    def forced(self) -> list[int]:
        """The next tokens, as far as the grammar allows only one at each place; the first ones, if there are many."""
        if thought := self._thought and self._thought.forced():
            return thought
        return [] if self.is_free or self.is_over else self.matcher.compute_ff_tokens()[:_MOST_FORCED]

    def forced_after(self, drafts: Sequence[int]) -> dict[int, int]:
        """The only tokens that may stand at samples beside the grammar's masks, see `Thought.forced_after`."""
        return self._thought.forced_after(drafts) if self._thought is not None and not self.is_over else {}

    def _consume(self, matcher: LLMatcher, token: int) -> None:
        if not self._has_ended and not matcher.is_error():
            is_taken = token not in self.end_tokens and matcher.try_consume_tokens([token]) == 1
            self._has_ended = not is_taken and not matcher.is_error()
