"""Encodes prompts and decodes token ids: short ones at once, long ones in a thread, for which callers take turns. Errors become
refusals."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np

from actors.gateway.caller_threads import MOST_THREADS, CallerThreads
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.text.chat_template import TemplateError
from actors.gateway.text.models.text_model import NoTokenizer, TextModel, TextTooLong
from actors.gateway.text.template_options import PLAIN, TemplateOptions

_INLINE_CHARACTERS = 4096  # longer texts are encoded in a thread, so that the event loop goes on
_TEXT_CHARACTERS = 16  # added to the length of each text or message, for the call and for what a template adds
_LARGE_CHARACTERS = 1 << 18  # longer ones are encoded one at a time: each takes some 100 bytes of memory a character meanwhile
_LEAST_BOUND_CHARACTERS, _CHARACTERS_A_TOKEN = 1 << 20, 32  # of one text; a token has about four
P = ParamSpec("P")
T = TypeVar("T")


def int32_ids(ids: Sequence[int]) -> np.ndarray:
    """Token ids as int32 [n], read-only. For 64 and more this is faster than numpy's own conversion. Raises: struct.error."""
    return np.frombuffer(struct.pack(f"<{len(ids)}i", *ids), "<i4")


def _characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + _TEXT_CHARACTERS * len(texts)


class PromptEncoder:
    """Encodes and decodes for one served model. `field` is the name of the client's field, for refusals; `caller` asks."""

    def __init__(self, model: TextModel, context_tokens: int) -> None:
        """`context_tokens`: of the model; it bounds the texts."""
        self.model, self._most_characters = model, max(_LEAST_BOUND_CHARACTERS, _CHARACTERS_A_TOKEN * context_tokens)
        self._threads, self._large = CallerThreads(MOST_THREADS, "texts"), CallerThreads(1, "large-texts")

    async def encode(
        self, texts: Sequence[str], field: str, *, caller: bytes = b"", add_special_tokens: bool = True
    ) -> list[list[int]]:
        """Token ids of plain prompts. Raises: Refusal."""
        size = self._size_of(texts, field)
        return await self._run(field, size, caller, self._encode_all, texts, add_special_tokens)

    async def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        field: str,
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
        *,
        caller: bytes = b"",
    ) -> list[int]:
        """Token ids of a conversation in the model's template, with tools as OpenAI has them. Raises: Refusal."""
        size = self._size_of([str(turn.get("content") or "") for turn in turns], field)
        if self.model.takes_long(turns, tools):
            size = max(size, _INLINE_CHARACTERS + 1)
        return await self._run(field, size, caller, self.model.encode_chat, turns, tools, options)

    async def decode(self, ids: np.ndarray, field: str, *, caller: bytes = b"") -> str:
        """The text of token ids, int32 [n], special tokens included. Raises: Refusal."""
        return await self._run(field, len(ids), caller, self.model.decode, ids.tolist())

    async def texts_of(self, tokens: Sequence[int], *, caller: bytes = b"") -> list[str]:
        """The text of each token id alone."""
        text_of = self.model.text_of
        return await self._run("tokens", len(tokens), caller, lambda: [text_of(token)[0] for token in tokens])

    def check_ids(self, ids: Sequence[int] | np.ndarray, field: str) -> np.ndarray:
        """Token ids of a client as int32 [n], n >= 1. Raises: Refusal for ids that the model does not have."""
        if not len(ids):
            raise invalid(field, "at least one token", [])
        if not isinstance(ids, np.ndarray) and (known := self._known(ids)) is not None:
            return known
        low, high = (int(ids.min()), int(ids.max())) if isinstance(ids, np.ndarray) else (min(ids), max(ids))
        if low < 0 or high >= self.model.vocabulary:
            raise invalid(field, f"token ids from 0 to {self.model.vocabulary - 1}", low if low < 0 else high)
        return np.asarray(ids, dtype="<i4")

    def _known(self, ids: Sequence[int]) -> np.ndarray | None:
        """The ids as int32 [n] if the model has all of them, else None. 128 take 3 us; `min`, `max` and numpy take 8."""
        try:
            array = int32_ids(ids)
        except struct.error:  # more than 32 bits
            return None
        return array if int(array.view("<u4").max()) < self.model.vocabulary else None  # a negative id is a large one there

    def _size_of(self, texts: Sequence[str], field: str) -> int:
        """Characters of all texts, with what each costs. Raises: Refusal for more than one request may have encoded."""
        if (longest := max(map(len, texts), default=0)) > self._most_characters:
            most = f"at most {self._most_characters} characters (this follows from the model's context)"
            raise Refusal("too_long", f"{field}: expected {most}, got {longest}", field=field)
        return _characters(texts)

    def _encode_all(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        return [self.model.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    async def _run(self, field: str, size: int, caller: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns; in a thread if it is long. size: characters, or tokens. Raises: Refusal naming the field."""
        try:
            if size <= _INLINE_CHARACTERS:
                return work(*args, **kwargs)
            threads = self._large if size > _LARGE_CHARACTERS else self._threads
            return await threads.run(caller, partial(work, *args, **kwargs))
        except (NoTokenizer, TemplateError) as error:
            raise Refusal("invalid", f"{field}: {error}", field=field) from None
        except TextTooLong as error:
            raise Refusal("too_long", f"{field}: {error}", field=field) from None
        except UnicodeError as error:
            reason = getattr(error, "reason", str(error))
            raise Refusal("invalid", f"{field}: expected valid Unicode text, got {reason}", field=field) from None
