"""The grammar of one answer: the tokens of the answer so far, and which may follow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from llguidance import LLMatcher

from gpu_workers.grammar.masks_ahead import MasksAhead, MaskThreads, MaskTimes
from gpu_workers.grammar.thought import Thought
from messages.generation.grammar import BoundedThinking

_MOST_FORCED = 32  # tokens that are reported to the scheduler in one message
_REASON_CHARACTERS = 500
_MOST_MASKS_S = 60.0  # of a processor, for all masks of an answer
_MOST_AHEAD = 15  # forced tokens whose masks are computed ahead: as many as a scheduler sends back at once


@dataclass(frozen=True)
class AnswerBeginning:
    """How an answer begins: matchers at the beginning of their grammars, which may still be compiled."""

    matcher: Future[LLMatcher] | None  # None: any text may follow, apart from the bound of its reasoning
    thinking: BoundedThinking | None = None
    finder: Future[LLMatcher] | None = None  # see `Thought`; with `thinking`

    @property
    def compilations(self) -> list[Future[LLMatcher]]:
        """The compilations that the first sample of the answer waits for."""
        return [each for each in (self.matcher, self.finder) if each is not None]


class AnswerGrammar:
    """Follows one answer. Not thread-safe."""

    def __init__(self, beginning: AnswerBeginning, end_tokens: list[int], n_prompt: int, generated: Sequence[int]) -> None:
        """end_tokens: which end the answer. generated: tokens of the answer that are known already."""
        self._beginning, self._generated = beginning, generated
        self.end_tokens = end_tokens
        self.n_consumed = n_prompt + len(generated)  # tokens of the sequence that the matcher knows, its prompt included
        self._has_ended = False
        self._has_strayed = False  # a forced token was not sampled: the model's logits are not numbers
        self._awaited: list[Future[LLMatcher]] = beginning.compilations
        self._ahead: Future[MasksAhead] | None = None
        self._forced: tuple[int, list[int]] = (-1, [])  # (`n_consumed` then, tokens): what `forced` has found last
        self.times = MaskTimes()

    @property
    def is_free(self) -> bool:
        """True if any token may follow where no one is forced."""
        return self._beginning.matcher is None

    @property
    def late(self) -> list[Future[Any]]:
        """The computations that the answer's next masks wait for and that are not done yet."""
        awaited = [*self._awaited, self._ahead] if self._ahead is not None else self._awaited
        return [each for each in awaited if not each.done()]

    @property
    def is_resting(self) -> bool:
        """True if its next masks are computed ahead."""
        return self._ahead is not None

    @property
    def matcher(self) -> LLMatcher:
        """The matcher after the tokens so far, of an answer that is not free."""
        if self._ahead is not None:
            wait([self._ahead])  # it uses the matcher
        return self._matcher

    @cached_property
    def _matcher(self) -> LLMatcher:
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
        if self.times.total_s > _MOST_MASKS_S:
            return f"its masks have taken more than {_MOST_MASKS_S:.0f} s of a processor"
        if self._has_strayed:
            return "a token was sampled that the grammar does not allow"
        if self.is_free or not self.matcher.is_error():
            return ""
        reason, _, _ = self.matcher.get_error().partition("\n")  # lines about the parser's state follow
        return reason[:_REASON_CHARACTERS]

    def sampled(self, position: int, tokens: Sequence[int]) -> None:
        """A step has given these tokens, the first of them for `position`. Some may be known already: the masks of this step
        have taken forced ones for certain, and on a GPU the next step may have read more."""
        n_known = self.n_consumed - position
        self._has_strayed |= n_known > len(tokens)
        self.consume(tokens[max(n_known, 0) :])

    def consume(self, tokens: Sequence[int]) -> None:
        """Go on by sampled tokens. An end token, or one that the grammar does not allow, ends the answer."""
        self.n_consumed += len(tokens)
        if tokens and self._ahead is not None:
            wait([self._ahead])
            self._ahead = None
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
        if self._forced[0] != self.n_consumed:
            found = [] if self.is_free or self.is_over else self.matcher.compute_ff_tokens()[:_MOST_FORCED]
            self._forced = self.n_consumed, found
        return self._forced[1]

    def consume_forced(self, drafts: list[int]) -> bool:
        """Go on by drafts that the grammar allows alone: the step that has them accepts them all. False, with nothing done, if
        other tokens may follow too, if one of them ends the answer, or if the reasoning before the answer is bounded."""
        if not drafts or self._thought is not None or self.forced()[: len(drafts)] != drafts:
            return False
        if not set(drafts).isdisjoint(self.end_tokens):
            return False
        self.consume(drafts)
        return True

    def forced_after(self, drafts: Sequence[int]) -> dict[int, int]:
        """The only tokens that may stand at samples beside the grammar's masks, see `Thought.forced_after`."""
        return self._thought.forced_after(drafts) if self._thought is not None and not self.is_over else {}

    def look_ahead(self, threads: MaskThreads, n_columns: int, forced: Sequence[int]) -> float:
        """Begin to compute the next masks if they are slow. forced: the next tokens, as `forced` has them. Returns how long to
        wait for them, in seconds; 0.0 if a step may compute them. n_columns: ids in a mask."""
        if self.is_free or self.is_over or not self.times.is_slow or self._ahead is not None:
            return 0.0
        drafts = list(forced[:_MOST_AHEAD])
        self._ahead, wait_s = threads.begin(self.matcher, drafts, n_columns, self.times.expected_s(1 + len(drafts)))
        return wait_s

    def take_ahead(self, drafts: list[int]) -> np.ndarray | None:
        """The masks [len(drafts) + 1, words] int32 that were computed ahead; None if they were not. Waits for them."""
        if self._ahead is None:
            return None
        ahead, self._ahead = self._ahead.result(), None
        self.times.add(ahead.took_s, len(ahead.masks))
        return ahead.of(drafts)

    def _consume(self, matcher: LLMatcher, token: int) -> None:
        if not self._has_ended and not matcher.is_error():
            is_taken = token not in self.end_tokens and matcher.try_consume_tokens([token]) == 1
            self._has_ended = not is_taken and not matcher.is_error()
