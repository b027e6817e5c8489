"""Special tokens written out in a conversation's texts: they are the client's words there, never the model's control tokens.

Only the chat template may open and close turns. A text may hold the words of a special token, or become them under the
template's hands: one that takes `<think>` away turns `<|im_<think>end|>` into a control token. So where a text holds the
beginning of one, the conversation is rendered a second time with a crack behind each such beginning. Has it the same special
tokens then, the texts gave none. Otherwise those without a crack are the template's: they are marked, and a second tokenizer
knows special tokens by their marks alone. Conversations without such beginnings are rendered once.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

_MARK_CHARACTERS = 12
_CRACK_CHARACTERS = 2  # who knew it could only make it vanish from a text
_PRIVATE_USE = range(0xE000, 0xF900)  # no text has a meaning for these


class SpecialText:
    """The special tokens of one tokenizer, as text."""

    def __init__(self, tokenizer: Tokenizer, literals: Iterable[str] = ()) -> None:
        """`literals`: strings that the chat template looks for in texts; they stay whole, so that it finds them."""
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        # one character cannot be broken; no model uses one as a control token
        self._texts = sorted((t.content for t in added if t.special and len(t.content) > 1), key=len, reverse=True)
        self._pattern = _any_of(self._texts) if self._texts else None
        self._firsts = sorted({text[0] for text in self._texts})
        whole = sorted(filter(self._stays_whole, set(literals)), key=len, reverse=True)
        self._breaks = re.compile("|".join(map(re.escape, [*whole, *self._firsts])))
        self._mark = _random_private(_MARK_CHARACTERS)  # nobody can write what nobody knows
        self._crack = _random_private(_CRACK_CHARACTERS)

    def may_occur(self, turns: Sequence[Mapping[str, Any]]) -> bool:
        """Does any text hold the beginning of a special token?"""
        return any(first in turn["content"] for turn in turns for first in self._firsts)

    def encode(
        self, turns: Sequence[Mapping[str, Any]], prompt: str, render: Callable[[Sequence[Mapping[str, Any]]], str]
    ) -> list[int] | None:
        """Ids of a conversation whose texts would give control tokens in `prompt`, as `render` (a chat template) writes it.

        None: they give none, and it can be tokenised as it is. Raises: what `render` raises.
        """
        if self._pattern is None or not self.may_occur(turns):
            return None
        cracked = render([{**turn, "content": self._cracked(turn["content"])} for turn in turns])
        if self._pattern.findall(cracked) == self._pattern.findall(prompt):
            return None
        marked = self._pattern.sub(lambda found: self._mark + found[0], cracked).replace(self._crack, "")
        tokenizer, id_of = self._marked
        ids = tokenizer.encode_batch_fast([marked], add_special_tokens=False)[0].ids
        return [id_of.get(token, token) for token in ids]

    def _cracked(self, text: str) -> str:
        return self._breaks.sub(lambda found: found[0] + self._crack if found[0] in self._firsts else found[0], text)

    def _stays_whole(self, literal: str) -> bool:
        """It holds a beginning, and none of a special token itself."""
        tails = [literal[at:] for at, character in enumerate(literal) if character in self._firsts]
        return bool(tails) and not any(text.startswith(tail) or tail.startswith(text) for tail in tails for text in self._texts)

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


def _random_private(n: int) -> str:
    return "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(n))
