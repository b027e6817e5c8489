"""The one validator of requests, whatever way they came in: wishes become orders, or are refused with the field named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from actors.gateway.requests.order import Api, Order
from actors.gateway.requests.quarantine import Quarantine
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.chat_template import TemplateError
from actors.gateway.text.tokenizer import NoTokenizer, TextModel
from messages.generation import Sampling
from messages.ids import mint_request_id
from messages.public import MAX_STOP_STRINGS

_INLINE_CHARACTERS = 4096  # longer texts are encoded off the loop
MAX_STOP_TOKENS = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What a client asks for, not yet tokenised. Exactly one of `texts`, `ids`, `turns`."""

    api: Api
    sampling: Sampling
    texts: Sequence[str] | None = None
    ids: Sequence[Sequence[int] | np.ndarray] | None = None
    turns: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None  # None: to the end of the context
    n: int = 1
    stop: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    ignore_eos: bool = False
    request: str = ""
    is_whole: bool = False
    is_resumable: bool = False
    digest: str = ""
    prompt_field: str = "prompt"  # how the client's protocol calls the prompt
    max_tokens_field: str = "max_tokens"
    priority: int = 0
    model: str = ""  # empty: whatever is served

    @property
    def n_sequences(self) -> int:
        """Sequences in all."""
        return (len(self.ids if self.ids is not None else self.texts or ()) or 1) * self.n


class Intake:
    """Turns wishes into orders for one served model."""

    def __init__(self, settings: GatewaySettings, model: TextModel) -> None:
        self._settings, self._model = settings, model
        self.quarantine = Quarantine(settings.retention_s)

    async def order(self, wish: Wish, created_s: float) -> Order:
        """Raises: Refusal naming the field."""
        self.check(wish)
        prompts = await self._tokens(wish)
        max_tokens = self._max_tokens(wish, prompts)
        eos_tokens = [] if wish.ignore_eos else self._model.eos_tokens
        order = Order(
            request=wish.request or mint_request_id(),
            api=wish.api,
            created_s=created_s,
            prompts=[prompt.tobytes() for prompt in prompts],
            sampling=wish.sampling,
            max_tokens=max_tokens,
            n=wish.n,
            stop=list(wish.stop),
            stop_tokens=sorted({*eos_tokens, *wish.stop_tokens}),
            is_whole=wish.is_whole,
            is_resumable=wish.is_resumable,
            digest=wish.digest,
            priority=wish.priority,
        )
        self.quarantine.check(order, created_s)
        return order

    def check(self, wish: Wish) -> None:
        """All that can be said before it is tokenised. Raises: Refusal naming the field."""
        settings = self._settings
        if wish.model and wish.model != settings.model_name:
            detail = f"model: expected {settings.model_name!r}, got {wish.model[:200]!r}"
            raise Refusal("not_found", detail, field="model", name="model_not_found")
        if not 1 <= wish.n <= settings.max_n:
            raise invalid("n", f"1 to {settings.max_n}", wish.n)
        if wish.n_sequences > settings.max_active_requests:
            most = f"at most {settings.max_active_requests} sequences (prompts times n)"
            raise invalid(wish.prompt_field, most, wish.n_sequences)
        if len(wish.stop) > MAX_STOP_STRINGS:
            raise invalid("stop", f"at most {MAX_STOP_STRINGS} strings", len(wish.stop))
        for stop in wish.stop:
            if not stop or len(stop) > 256:
                raise invalid("stop", "strings of 1 to 256 characters", stop)
        room = MAX_STOP_TOKENS - len(self._model.eos_tokens)
        if len(wish.stop_tokens) > room:
            raise invalid("stop_token_ids", f"at most {room} ids", len(wish.stop_tokens))
        for token in wish.stop_tokens:
            if not 0 <= token < self._model.vocabulary:
                raise invalid("stop_token_ids", f"ids from 0 to {self._model.vocabulary - 1}", token)

    async def _tokens(self, wish: Wish) -> list[np.ndarray]:
        if wish.ids is not None:
            return [self._checked_ids(ids, wish.prompt_field) for ids in wish.ids]
        if wish.turns is not None:
            size = sum(len(str(turn.get("content") or "")) for turn in wish.turns)
            if size <= _INLINE_CHARACTERS and self._model.takes_long(wish.turns):
                size = _INLINE_CHARACTERS + 1
            encoded = [await self._encode(wish.prompt_field, size, self._model.encode_chat, wish.turns)]
        else:
            texts = wish.texts or ()
            self._check_lengths(texts, wish.prompt_field)
            encoded = await self._encode(wish.prompt_field, sum(map(len, texts)), self._encode_all, texts)
        if not encoded:
            raise invalid(wish.prompt_field, "at least one prompt", "none")
        for ids in encoded:
            if not ids:
                raise invalid(wish.prompt_field, "at least one token", "an empty prompt")
        return [np.array(ids, dtype="<i4") for ids in encoded]

    def _check_lengths(self, texts: Sequence[str], name: str) -> None:
        """What can never fit is not even encoded."""
        fewest, limit = max(map(self._model.fewest_tokens, texts), default=0), self._settings.max_length
        if fewest >= limit:
            detail = f"this model's context is {limit} tokens; the prompt has at least {fewest}"
            raise Refusal("too_long", detail, field=name, name="context_length_exceeded")

    def _encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._model.encode(text) for text in texts]

    async def _encode(self, name: str, n_characters: int, encode: Callable[[Any], T], value: Any) -> T:
        try:
            if n_characters <= _INLINE_CHARACTERS:
                return encode(value)
            return await asyncio.get_running_loop().run_in_executor(None, encode, value)
        except (NoTokenizer, TemplateError) as error:
            raise Refusal("invalid", f"{name}: {error}", field=name) from None
        except UnicodeError as error:
            raise Refusal("invalid", f"{name}: expected valid Unicode text, got {error.reason}", field=name) from None  # pyright: ignore[reportAttributeAccessIssue]

    def _checked_ids(self, ids: Sequence[int] | np.ndarray, name: str) -> np.ndarray:
        if not len(ids):
            raise invalid(name, "at least one token", "an empty list")
        array = np.asarray(ids, dtype=np.int64)
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self._model.vocabulary:
            raise invalid(name, f"token ids from 0 to {self._model.vocabulary - 1}", low if low < 0 else high)
        return array.astype("<i4")

    def _max_tokens(self, wish: Wish, prompts: Sequence[np.ndarray]) -> int:
        longest, limit = max(len(prompt) for prompt in prompts), self._settings.max_length
        if longest >= limit:
            detail = f"this model's context is {limit} tokens; the prompt has {longest}"
            raise Refusal("too_long", detail, field=wish.prompt_field, name="context_length_exceeded")
        if wish.max_tokens is None:
            return limit - longest
        if wish.max_tokens < 1:
            raise invalid(wish.max_tokens_field, "at least 1", wish.max_tokens)
        if longest + wish.max_tokens > limit:
            detail = (
                f"this model's context is {limit} tokens; the prompt has {longest} and "
                f"{wish.max_tokens_field} asks for {wish.max_tokens}"
            )
            raise Refusal("too_long", detail, field=wish.max_tokens_field, name="context_length_exceeded")
        return wish.max_tokens
