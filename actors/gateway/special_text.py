"""Special tokens written out in a conversation's texts: they are the client's words there, never the model's control tokens.

Only the chat template may open and close turns. Where a text contains the words of a special token, they are broken before
the template is rendered, the template's own ones are marked, and a second tokenizer knows special tokens by their marks alone.
Conversations without such words never come here.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

_MARK_CHARACTERS = 12
_PRIVATE_USE = range(0xE000, 0xF900)  # no text has a meaning for these


class SpecialText:
    """The special tokens of one tokenizer, as text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        # one character cannot be broken; no model uses one as a control token
        self._texts = sorted((t.content for t in added if t.special and len(t.content) > 1), key=len, reverse=True)
        self._pattern = _any_of(self._texts) if self._texts else None
        self._heads = sorted({text[:2] for text in self._texts})
        self._mark, self._crack = _random_mark(), _random_mark()  # nobody can write what nobody knows

    def occurs_in(self, turns: Sequence[Mapping[str, Any]]) -> bool:
        """Does any text contain the words of a special token?"""
        return any(self._occurs(turn["content"]) for turn in turns)

    def _occurs(self, text: str) -> bool:
        """Nearly every text is let off by its lack of beginnings, at a tenth of the cost."""
        return self._pattern is not None and any(head in text for head in self._heads) and bool(self._pattern.search(text))

    def encode(self, turns: Sequence[Mapping[str, Any]], render: Callable[[Sequence[Mapping[str, Any]]], str]) -> list[int]:
        """Ids of the conversation as `render` (a chat template) writes it. Raises: what `render` raises."""
        assert self._pattern is not None, "asked only where such words occur"
        prompt = render([{**turn, "content": self._broken(turn["content"])} for turn in turns])
        marked = self._pattern.sub(lambda found: self._mark + found[0], prompt).replace(self._crack, "")
        tokenizer, id_of = self._marked
        ids = tokenizer.encode_batch_fast([marked], add_special_tokens=False)[0].ids
        return [id_of.get(token, token) for token in ids]

    def _broken(self, text: str) -> str:
        """The text with a crack in each special token; taking one apart may uncover another."""
        assert self._pattern is not None
        while self._pattern.search(text):
            text = self._pattern.sub(lambda found: found[0][0] + self._crack + found[0][1:], text)
        return text

    @cached_property
    def _marked(self) -> tuple[Tokenizer, dict[int, int]]:
        """The same tokenizer with marks before its special tokens' texts, and the true ids of those tokens."""
        description = json.loads(self._tokenizer.to_str())
        for token in description["added_tokens"]:
            if token["content"] in self._texts:
                token["content"] = self._mark + token["content"]
        description["post_processor"] = None  # it adds what is not asked for, and names tokens by their texts
        marked = Tokenizer.from_str(json.dumps(description))
        pairs = ((marked.token_to_id(self._mark + text), self._tokenizer.token_to_id(text)) for text in self._texts)
        return marked, {mine: true for mine, true in pairs if mine is not None and true is not None}


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Matches the first of these texts (longest first). Grouped by their beginnings: one by one, a few hundred of them cost
    milliseconds on a page of HTML.
    """
    by_head: dict[str, list[str]] = {}
    for text in texts:
        by_head.setdefault(text[:2], []).append(text[2:])
    groups = (f"{re.escape(head)}(?:{'|'.join(map(re.escape, tails))})" for head, tails in by_head.items())
    return re.compile("|".join(groups))


def _random_mark() -> str:
    return "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(_MARK_CHARACTERS))
