"""The one validator of requests, whatever door they came through: a new request becomes a tokenised order, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.order import Order
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.chat_template import TemplateError
from actors.gateway.text.tokenizer import NoTokenizer, TextModel
from messages.generation import MAX_STOP_STRINGS, MAX_STOP_TOKENS, NO_TOKEN_LIMIT, Terms

_INLINE_CHARACTERS = 4096  # longer texts are encoded off the loop
T = TypeVar("T")


class OrderBuilder:
    """Checks and tokenises requests for one served model."""

    def __init__(self, settings: GatewaySettings, model: TextModel) -> None:
        self._settings, self._model = settings, model

    async def build(self, new: NewRequest, created_s: float) -> Order:
        """Tokenise a request that `check` has passed. Long texts are encoded in a thread. `created_s` is Unix time.

        Raises: Refusal naming the field.
        """
        prompts = await self._tokens(new)
        return Order(
            request=new.request,
            api=new.api,
            created_s=created_s,
            prompts=[prompt.tobytes() for prompt in prompts],
            sampling=new.sampling,
            terms=self._terms(new, prompts),
            n=new.n,
            is_whole=new.is_whole,
            is_resumable=new.is_resumable,
            digest=new.digest,
        )

    def check(self, new: NewRequest) -> None:
        """Check all that can be checked before a request is tokenised. Raises: Refusal naming the field."""
        settings = self._settings
        if new.model and new.model != settings.model_name:
            detail = f"model: expected {settings.model_name!r}, got {new.model[:200]!r}"
            raise Refusal("not_found", detail, field="model", name="model_not_found")
        if not 1 <= new.n <= settings.max_n:
            raise invalid("n", f"1 to {settings.max_n}", new.n)
        if new.n_sequences > settings.max_active_requests:
            most = f"at most {settings.max_active_requests} sequences (prompts times n)"
            raise invalid(new.prompt_field, most, new.n_sequences)
        if len(new.terms.stop) > MAX_STOP_STRINGS:
            raise invalid("stop", f"at most {MAX_STOP_STRINGS} strings", len(new.terms.stop))
        for stop in new.terms.stop:
            if not stop or len(stop) > 256:
                raise invalid("stop", "strings of 1 to 256 characters", stop)
        room = MAX_STOP_TOKENS - len(self._model.eos_tokens)
        if len(new.terms.stop_tokens) > room:
            raise invalid("stop_token_ids", f"at most {room} ids", len(new.terms.stop_tokens))
        for token in new.terms.stop_tokens:
            if not 0 <= token < self._model.vocabulary:
                raise invalid("stop_token_ids", f"ids from 0 to {self._model.vocabulary - 1}", token)

    async def _tokens(self, new: NewRequest) -> list[np.ndarray]:
        if new.ids is not None:
            return [self._checked_ids(ids, new.prompt_field) for ids in new.ids]
        if new.turns is not None:
            size = sum(len(str(turn.get("content") or "")) for turn in new.turns)
            if size <= _INLINE_CHARACTERS and self._model.takes_long(new.turns):
                size = _INLINE_CHARACTERS + 1
            encoded = [await self._encode(new.prompt_field, size, self._model.encode_chat, new.turns)]
        else:
            texts = new.texts or ()
            self._check_lengths(texts, new.prompt_field)
            encoded = await self._encode(new.prompt_field, sum(map(len, texts)), self._encode_all, texts)
        if not encoded:
            raise invalid(new.prompt_field, "at least one prompt", "none")
        for ids in encoded:
            if not ids:
                raise invalid(new.prompt_field, "at least one token", "an empty prompt")
        return [np.array(ids, dtype="<i4") for ids in encoded]

    def _check_lengths(self, texts: Sequence[str], name: str) -> None:
        """What can never fit is not even encoded."""
        fewest, limit = max(map(self._model.fewest_tokens, texts), default=0), self._settings.max_length
        if fewest >= limit:
            detail = f"this model's context is {limit} tokens; the prompt has at least {fewest}"
            raise Refusal("too_long", detail, field=name)

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

    def _terms(self, new: NewRequest, prompts: Sequence[np.ndarray]) -> Terms:
        """The terms as they are carried from here on."""
        terms = new.terms
        max_tokens = self._max_tokens(new, prompts)
        if terms.min_tokens > max_tokens:
            raise invalid("min_tokens", f"at most {max_tokens}, the most tokens that may be generated", terms.min_tokens)
        eos_tokens = [] if terms.ignore_eos else self._model.eos_tokens
        reads_groups = new.is_whole and not terms.stop and new.sampling.logprobs < 0  # nobody looks at single tokens
        return msgspec.structs.replace(
            terms,
            max_tokens=max_tokens,
            stop_tokens=sorted({*eos_tokens, *terms.stop_tokens}),
            group_tokens=self._settings.whole_tokens if reads_groups else 1,
        )

    def _max_tokens(self, new: NewRequest, prompts: Sequence[np.ndarray]) -> int:
        longest, limit = max(len(prompt) for prompt in prompts), self._settings.max_length
        if longest >= limit:
            detail = f"this model's context is {limit} tokens; the prompt has {longest}"
            raise Refusal("too_long", detail, field=new.prompt_field)
        wanted = new.terms.max_tokens
        if wanted == NO_TOKEN_LIMIT:
            return limit - longest
        if wanted < 1:
            raise invalid(new.max_tokens_field, "at least 1", wanted)
        if longest + wanted > limit:
            detail = (
                f"this model's context is {limit} tokens; the prompt has {longest} and {new.max_tokens_field} asks for {wanted}"
            )
            raise Refusal("too_long", detail, field=new.max_tokens_field)
        return wanted
