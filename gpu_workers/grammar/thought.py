"""The reasoning of one answer, bounded: after so many tokens, only those of its end mark may follow.

It is a function of the tokens so far, so whoever goes on with an answer after a death bounds it at the same token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from llguidance import LLMatcher

from messages.generation.grammar import BoundedThinking


def end_finder(thinking: BoundedThinking) -> str:
    """A grammar that a text matches once the end mark has come."""
    end = json.dumps(thinking.end_text)
    return LLMatcher.grammar_from_lark(f"start: thought rest\nthought[suffix={end}]: /(?s:.*)/\nrest: /(?s:.*)/\n")


class Thought:
    """How far the reasoning has come. Not thread-safe."""

    def __init__(self, thinking: BoundedThinking, finder: LLMatcher) -> None:
        """finder: a matcher at the beginning of `end_finder`, which is taken over."""
        self._thinking, self._finder = thinking, finder
        self._n_begun = 0  # tokens of the mark at the beginning that have come
        self._n_thought = 0
        self._has_ended = False

    def consume(self, token: int) -> None:
        """Go on by a token of the answer."""
        begin = self._thinking.begin
        if self._has_ended:
            return
        if self._n_begun < len(begin):
            self._has_ended = token != begin[self._n_begun]  # this answer has no reasoning
            self._n_begun += 1
            return
        self._n_thought += 1
        self._finder.try_consume_tokens([token])  # special tokens are not taken, and end nothing
        self._has_ended = self._finder.is_accepting() or not self._is_within()

    def forced(self) -> list[int]:
        """The tokens that must follow, one after the other: what is left of the end mark. Empty: any may follow."""
        n_over = self._n_thought - self._thinking.n_tokens
        is_open = not self._has_ended and self._n_begun == len(self._thinking.begin)
        return self._thinking.end[n_over:] if is_open and n_over >= 0 else []

    def forced_after(self, drafts: Sequence[int]) -> dict[int, int]:
        """The only token that may stand at sample i, where there is one: sample 0 stands before all drafts, sample i after i of
        them."""
        if self._has_ended or (self._n_thought + len(drafts) < self._thinking.n_tokens):
            return {}
        then, found = self._copy(), dict[int, int]()
        for index, draft in enumerate([*drafts, -1]):
            if forced := then.forced():
                found[index] = forced[0]
            if index < len(drafts):
                then.consume(draft)
        return found

    def _is_within(self) -> bool:
        return self._n_thought < self._thinking.n_tokens + len(self._thinking.end)

    def _copy(self) -> Thought:
        other = Thought(self._thinking, self._finder.deep_copy())
        other._n_begun, other._n_thought, other._has_ended = self._n_begun, self._n_thought, self._has_ended
        return other
