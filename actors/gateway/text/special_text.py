"""Keeps text of a conversation from being encoded as the model's control tokens. Only the chat template may write those.

A client's text may contain a special token such as `<|im_end|>`, or form one only in the rendered prompt: a template that
removes `<think>` turns `<|im_<think>end|>` into `<|im_end|>`. So if any text contains the first character of a special token:

1. Render the conversation again, with a breaker (random private-use characters) inserted into the texts after each such
   character. No text can form a special token now.
2. If both renderings contain the same special tokens, the texts formed none: the first rendering is encoded as usual.
3. Otherwise every special token in the second rendering was written by the template. Put a sentinel (more random characters)
   before each of them, remove the breakers, and encode with a second tokenizer whose special tokens start with the sentinel.

Conversations without such a character are rendered once.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer

_SENTINEL_CHARACTERS = 12
_BREAKER_CHARACTERS = 2  # short, because a client who guesses it can only have it removed from a text
# A long text is searched and changed in slices: other threads run between two of them, but not within one
_SLICE_CHARACTERS = 1 << 15
_NOTHING = "(?!)"  # a pattern that never matches
_PRIVATE_USE = range(0xE000, 0xF900)  # private use area: characters without a meaning
_KEYS_OF_TURNS = ("role", "content", "name", "tool_calls", "tool_call_id", "id", "function", "arguments")
_KEYS_OF_TOOLS = ("type", "description", "parameters", "properties", "required", "items", "enum", "default")
_KEYS = frozenset(_KEYS_OF_TURNS + _KEYS_OF_TOOLS)  # templates look for them, so they stay as they are
C = TypeVar("C")


class SpecialText:
    """The special tokens of one tokenizer, and how to encode a conversation whose texts contain them."""

    def __init__(self, tokenizer: Tokenizer, literals: Iterable[str] = ()) -> None:
        """`literals`: strings that the chat template searches for in texts. They get no breaker, so that it finds them."""
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        # one character cannot be broken, and no model has a control token of one character
        self._texts = sorted((t.content for t in added if t.special and len(t.content) > 1), key=len, reverse=True)
        self._pattern = _any_of(self._texts)
        self._longest = len(self._texts[0]) if self._texts else 0
        self._firsts = sorted({text[0] for text in self._texts})
        whole = sorted(filter(self._stays_whole, set(literals)), key=len, reverse=True)
        self._whole = re.compile("|".join(map(re.escape, whole)) or _NOTHING)
        self._longest_whole = len(whole[0]) if whole else 0
        self._sentinel = _random_private(_SENTINEL_CHARACTERS)  # random, so that no client can write it
        self._breaker = _random_private(_BREAKER_CHARACTERS)
        self._broken_firsts = str.maketrans({first: first + self._breaker for first in self._firsts})

    def may_occur(self, conversation: Any) -> bool:
        """True if any text contains the first character of a special token. `conversation`: turns, or whatever has texts."""
        return any(first in text for text in _texts_in(conversation) for first in self._firsts)

    def encode(self, conversation: C, prompt: str, render: Callable[[C], str]) -> list[int] | None:
        """Returns the token ids of a conversation whose texts form special tokens in `prompt`, or None if they form none.

        With None, `prompt` can be encoded as it is.

        Args:
            conversation: what `render` takes: turns, or turns and tools; lists and objects of texts.
            prompt: what `render` has returned for it.
            render: the chat template. Whatever it raises is raised.
        """
        if not self.may_occur(conversation):
            return None
        broken = render(self._broken(conversation))
        if self._special_tokens(broken) == self._special_tokens(prompt):
            return None
        tokenizer, id_of = self._sentinel_tokenizer
        ids = tokenizer.encode_batch_fast([self._with_sentinels(broken)], add_special_tokens=False)[0].ids
        return [id_of.get(token, token) for token in ids]

    def _broken(self, value: Any) -> Any:
        """The same value with breakers in its texts. Names of roles, and keys that templates look for, stay as they are."""
        if isinstance(value, str):
            return self._break(value)
        if isinstance(value, Mapping):
            return {
                key if key in _KEYS else self._broken(key): one if key == "role" else self._broken(one)
                for key, one in value.items()
            }
        if isinstance(value, tuple):
            return tuple(map(self._broken, value))
        return [*map(self._broken, value)] if isinstance(value, list) else value

    def _break(self, text: str) -> str:
        """Insert the breaker after each first character of a special token that is not part of a literal kept whole."""
        parts, at = list[str](), 0
        for found in _matches(self._whole, self._longest_whole, text):
            parts += (self._break_firsts(text[at : found.start()]), found[0])
            at = found.end()
        return "".join((*parts, self._break_firsts(text[at:])))

    def _break_firsts(self, text: str) -> str:
        return "".join(part.translate(self._broken_firsts) for part in _slices(text))

    def _special_tokens(self, prompt: str) -> list[str]:
        return [found[0] for found in _matches(self._pattern, self._longest, prompt)]

    def _with_sentinels(self, broken: str) -> str:
        """A sentinel before each special token, and no breakers."""
        parts, at = list[str](), 0
        for found in _matches(self._pattern, self._longest, broken):
            parts += (self._unbroken(broken[at : found.start()]), self._sentinel, found[0])
            at = found.end()
        return "".join((*parts, self._unbroken(broken[at:])))

    def _unbroken(self, text: str) -> str:
        return "".join(part.replace(self._breaker, "") for part in _slices(text, self._breaker))

    def _stays_whole(self, literal: str) -> bool:
        """True if `literal` contains a first character of a special token, but cannot be part of one."""
        tails = [literal[at:] for at, character in enumerate(literal) if character in self._firsts]
        return bool(tails) and not any(text.startswith(tail) or tail.startswith(text) for tail in tails for text in self._texts)

    @cached_property
    def _sentinel_tokenizer(self) -> tuple[Tokenizer, dict[int, int]]:
        """A tokenizer whose special tokens start with the sentinel, and the original ids of those tokens by the new ones."""
        source = self._tokenizer
        tokenizer = Tokenizer(source.model)  # shares the vocabulary: reading it again would hold the event loop for a second
        if source.normalizer is not None:
            tokenizer.normalizer = source.normalizer
        if source.pre_tokenizer is not None:
            tokenizer.pre_tokenizer = source.pre_tokenizer
        n_model = source.get_vocab_size(with_added_tokens=False)
        gaps = _first_free_id(tokenizer, n_model) - n_model
        tokenizer.add_tokens([_random_private(_SENTINEL_CHARACTERS) for _ in range(gaps)])  # so that no id is given twice
        id_of: dict[int, int] = {}
        for original, token in sorted(source.get_added_tokens_decoder().items()):
            text = self._sentinel + token.content if token.content in self._texts else token.content
            tokenizer.add_tokens([_named(token, text)])
            new = tokenizer.token_to_id(text)
            if new is not None:
                id_of[new] = original
        return tokenizer, id_of


def _first_free_id(tokenizer: Tokenizer, n_tokens: int) -> int:
    """The lowest id above those of all `n_tokens` tokens, whose ids may have gaps."""
    found = at = 0
    while found < n_tokens:
        found += tokenizer.id_to_token(at) is not None
        at += 1
    return at


def _named(token: AddedToken, content: str) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )


def _texts_in(value: Any) -> Iterator[str]:
    """All texts of a client in turns or tools."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in _KEYS:
                yield str(key)
            if key != "role":
                yield from _texts_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts_in(one)


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    """A pattern that matches any of these texts, which come longest first.

    They are grouped by their first two characters: a plain alternation of a few hundred texts takes milliseconds on a page of
    HTML.
    """
    by_head: dict[str, list[str]] = {}
    for text in texts:
        by_head.setdefault(text[:2], []).append(text[2:])
    groups = (f"{re.escape(head)}(?:{'|'.join(map(re.escape, tails))})" for head, tails in by_head.items())
    return re.compile("|".join(groups) or _NOTHING)


def _matches(pattern: re.Pattern[str], longest: int, text: str) -> Iterator[re.Match[str]]:
    """What `pattern.finditer(text)` gives, slice by slice. `longest`: characters of the longest match."""
    at = 0
    while at < len(text):
        stop = at + _SLICE_CHARACTERS
        for found in pattern.finditer(text, at, stop + longest):
            if found.start() >= stop:
                break
            yield found
            at = found.end()
        at = max(at, stop)


def _slices(text: str, uncut: str = "") -> Iterator[str]:
    """The text in parts, none of which ends within `uncut`, two characters that differ."""
    at = 0
    while at < len(text):
        stop = at + _SLICE_CHARACTERS
        stop += text[stop - 1 : stop + 1] == uncut
        yield text[at:stop]
        at = stop


def _random_private(n: int) -> str:
    """`n` random characters of the private use area, all different."""
    return "".join(map(chr, secrets.SystemRandom().sample(_PRIVATE_USE, n)))
