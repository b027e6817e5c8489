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
    """Follows one answer. Not thread-safe.

    The matcher stands after `beyond`: tokens that must come next, so that nobody has to wait for them before the mask after
    them is computed."""

    def __init__(self, beginning: AnswerBeginning, end_tokens: list[int], n_prompt: int, generated: Sequence[int]) -> None:
        """end_tokens: which end the answer. generated: tokens of the answer that are known already."""
        self._beginning, self._generated = beginning, generated
        self.end_tokens = end_tokens
        self.n_known = n_prompt + len(generated)  # tokens of the sequence, its prompt included
        self.beyond: list[int] = []  # the only tokens that may follow, as far as the matcher has consumed them
        self.has_mask = False  # which tokens may follow the matcher's has been computed ahead
        self._has_ended = False
        self._has_strayed = False  # a forced token was not sampled: the model's logits are not numbers
        self._awaited: list[Future[LLMatcher]] = beginning.compilations
        self._ahead: Future[MasksAhead] | None = None
        self.times = MaskTimes()

    @property
    def is_free(self) -> bool:
        """True if any token may follow where no one is forced."""
        return self._beginning.matcher is None

    @property
    def late(self) -> list[Future[Any]]:
        """The computations that the answer's next masks wait for and that are not done yet."""
        if self._awaited:
            self._awaited = [each for each in self._awaited if not each.done()]
        if self._ahead is None or self._ahead.done():
            return list(self._awaited)
        return [*self._awaited, self._ahead]

    @property
    def is_resting(self) -> bool:
        """True if its next masks are computed by another thread."""
        return self._ahead is not None

    @property
    def matcher(self) -> LLMatcher:
        """The matcher after the tokens so far and `beyond`, of an answer that is not free."""
        if self._ahead is not None:
            wait([self._ahead])  # it uses the matcher
        return self._matcher

    @cached_property
    def _matcher(self) -> LLMatcher:
        assert self._beginning.matcher is not None, "the answer is free"
        matcher = self._beginning.matcher.result().deep_copy()
        self._consume(matcher, list(self._generated))
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
        """True if nothing but an end token may follow `beyond`: the answer has ended, or failed."""
        return not self.is_free and (self._has_ended or self.matcher.is_error())

    @property
    def failure(self) -> str:
        """Why the answer cannot go on; "" if it can, or has ended. Where a grammar exceeds a limit of the library, every
        rank that follows the answer finds that at the same token."""
        if self.times.total_s > _MOST_MASKS_S:
            return f"its masks have taken more than {_MOST_MASKS_S:.0f} s of a processor"
        if self._has_strayed:
            return "a token was sampled that the grammar does not allow"
        if self.is_free or self.beyond or not self.matcher.is_error():
            return ""
        reason, _, _ = self.matcher.get_error().partition("\n")  # lines about the parser's state follow
        return reason[:_REASON_CHARACTERS]

    def sampled(self, tokens: list[int]) -> None:
        """The answer goes on by these tokens. An end token, or one that the grammar does not allow, ends it."""
        self.n_known += len(tokens)
        if n_beyond := min(len(tokens), len(self.beyond)):
            self._has_strayed |= tokens[:n_beyond] != self.beyond[:n_beyond]
            del self.beyond[:n_beyond]
        if (thought := self._thought) is not None:
            for token in tokens:
                thought.consume(token)
        if len(tokens) > n_beyond and not self.is_free:
            self._go_on(tokens[n_beyond:])

    def possible(self, drafts: list[int]) -> list[int]:
        """The drafts after `beyond` up to the first one that the grammar does not allow."""
        if self.is_free:
            return drafts
        return drafts[: self.matcher.validate_tokens(drafts)] if drafts and not self.is_over else []

    def forced(self) -> list[int]:
        """The next tokens, as far as the grammar allows only one at each place; the first ones, if there are many."""
        if thought := self._thought and self._thought.forced():
            return thought
        if self.beyond or self.is_free or self.is_over:
            return self.beyond
        found = self.matcher.compute_ff_tokens()[:_MOST_FORCED]
        if found and self._thought is None:
            self._go_beyond(found)
        return found

    def forced_after(self, drafts: Sequence[int]) -> dict[int, int]:
        """The only tokens that may stand at samples beside the grammar's masks, see `Thought.forced_after`."""
        return self._thought.forced_after(drafts) if self._thought is not None and not self.is_over else {}

    def look_ahead(self, threads: MaskThreads, n_columns: int, forced: Sequence[int]) -> float:
        """Begin to compute the next masks if they are slow. forced: the next tokens, as `forced` has them. Returns how long to
        wait for them, in seconds; 0.0 if they are quick. n_columns: ids in a mask."""
        if self.is_free or not self.times.is_slow or self.has_mask or self._ahead is not None or self.is_over:
            return 0.0
        drafts = [] if self.beyond else list(forced[:_MOST_AHEAD])
        self._ahead, wait_s = threads.begin(self.matcher, drafts, n_columns, self.times.expected_s(1 + len(drafts)))
        return wait_s

    def take_ahead(self, drafts: list[int]) -> np.ndarray | None:
        """The masks [len(drafts) + 1, words] int32 after `beyond` that another thread has computed; None if it has not. Waits
        for them."""
        if self._ahead is None:
            return None
        ahead, self._ahead = self._ahead.result(), None
        self.times.add(ahead.took_s, len(ahead.masks))
        return ahead.of(drafts)

    def _go_on(self, tokens: list[int]) -> None:
        if self._ahead is not None:
            wait([self._ahead])
            self._ahead = None
        self.has_mask = False
        self._consume(self.matcher, tokens)

    def _go_beyond(self, forced: list[int]) -> None:
        n_tokens = next((place for place, token in enumerate(forced) if token in self.end_tokens), len(forced))
        if n_tokens:
            self.beyond = forced[:n_tokens]
            self._go_on(self.beyond)

    def _consume(self, matcher: LLMatcher, tokens: list[int]) -> None:
        if not tokens or self._has_ended or matcher.is_error():
            return
        n_before_end = next((place for place, token in enumerate(tokens) if token in self.end_tokens), len(tokens))
        n_taken = matcher.try_consume_tokens(tokens[:n_before_end]) if n_before_end else 0
        self._has_ended = n_taken < len(tokens) and not matcher.is_error()
