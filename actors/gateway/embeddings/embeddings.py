"""Computes embeddings for every API of one gateway: admits the texts, tokenises them, and shortens the vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from actors.gateway.caller_threads import MOST_THREADS, CallerThreads
from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from actors.gateway.embeddings.text import EmbeddingText
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.requests.model_names import check_embedding_model
from actors.gateway.requests.refusal_log import NO_CALL, CallTrace
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.settings import GatewaySettings
from actors.gateway.tenants.tenant_limits import TenantLimits
from messages.errors import ConfigError
from messages.lifecycle.model_digests import read_text_digest, refuse_other_text

_INLINE_CHARACTERS = 2048  # longer texts are tokenised in a thread, so that the event loop goes on


@dataclass(frozen=True)
class EmbeddingSpec:
    """What a client asks for: either texts or token ids. `texts_field`: what these are called in its API, for refusals."""

    texts_field: str
    texts: Sequence[str] | None = None
    ids: Sequence[Any] | None = None  # lists or arrays of int
    dimensions: int | None = None  # of the vectors; None: all that the model has
    truncate_prompt_tokens: int | None = None  # None: a text that is too long is refused; -1: it is cut to what the model takes
    prompt_name: str | None = None  # of the prompt before each text; "": none; None: the model's default one
    names: Mapping[str, str] = field(default_factory=dict)  # its id, its API and what else its line of the log has of them
    call: CallTrace = NO_CALL  # what else is known of it, for its trace


@dataclass(frozen=True)
class Vectors:
    """The answer: float32 [texts, dimensions], and the number of tokens that were read. `headers`: what is told of limits."""

    values: np.ndarray
    n_tokens: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class EmbeddingTimes:
    """Times of one call by the monotonic clock. `sent_s`: when its first texts went to an embedder; 0: they wait."""

    began_s: float
    sent_s: float = 0.0
    n_sent: int = 0  # messages with texts, those that were sent again too

    def sent(self, now_s: float) -> None:
        """Texts go to an embedder."""
        self.sent_s = self.sent_s or now_s
        self.n_sent += 1


@dataclass(frozen=True)
class EndedEmbedding:
    """A call that is over, for its trace. `n_tokens`: 0: its client has left before."""

    spec: EmbeddingSpec
    model: str
    tenant: str
    n_texts: int
    n_tokens: int
    times: EmbeddingTimes


class Embeddings:
    """The embedding model as one gateway serves it."""

    def __init__(
        self,
        settings: GatewaySettings,
        text: EmbeddingText,
        dispatcher: EmbeddingDispatcher,
        manager: RequestManager,
        limits: TenantLimits | None,
        trace: Callable[[EndedEmbedding], Mapping[str, str]] | None = None,
    ) -> None:
        """`manager`: what is embedded counts among its requests, and is in its log. `limits`: of tenants. `trace`: makes the
        trace of a call and returns headers for its answer; None: traces are off."""
        self.model_name, self._settings = settings.embedding_model, settings
        self.text = text
        self._prompts, self._default_prompt = settings.embedding_prompts, settings.embedding_default_prompt
        self._normalizes = settings.embedding_normalized
        self._dimensions, self._max_texts = settings.embedding_dimensions, settings.max_batch
        self._timeout_s, self._dispatcher, self._gate = settings.request_timeout_s, dispatcher, manager.gate
        self._access_log, self._limits, self._trace = manager.access_log, limits, trace
        self._threads = CallerThreads(MOST_THREADS, "texts-to-embed")

    def check(self, asked: str) -> None:
        """Return if this is the model `asked` for; an empty name asks for any. Raises: Refusal."""
        check_embedding_model(asked, self._settings)

    async def embed(
        self,
        spec: EmbeddingSpec,
        caller: bytes = b"",
        *,
        was_accepted: bool = False,
        on_accepted: Callable[[], None] = lambda: None,
    ) -> Vectors:
        """The vectors of the texts of `spec`, in their order. Waits for a place and for the embedder. `caller`: who asks.
        `was_accepted`: by an earlier incarnation, so it counts as no new call. `on_accepted`: called when nothing refuses it
        any more.

        Raises: Refusal when the texts or dimensions are not allowed, the limits of the tenant have no room for them, or the
        vectors do not come in time.
        """
        gate, loop = self._gate, asyncio.get_running_loop()
        times = EmbeddingTimes(loop.time())
        n_texts, prompt = self._n_texts(spec), self._prompt(spec)
        gate.begin_call(caller, 1.0 if self._limits is None else self._limits.weight_of(caller), was_accepted=was_accepted)
        try:  # a drain waits for it
            ids = await self._tokenised(spec, prompt, caller)
            n_tokens = sum(map(len, ids))
            async with self._taken(caller, n_tokens, times, was_accepted=was_accepted) as headers:
                on_accepted()
                async with asyncio.timeout(self._timeout_s):
                    values = await self._dispatcher.embed(ids, lambda: times.sent(loop.time()), caller)
        except TimeoutError:
            raise Refusal("deadline", f"no vectors within {self._timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._ended(spec, caller, n_texts, 0, times)
            raise
        finally:
            gate.end_call(caller)
        told = {**headers, **self._ended(spec, caller, n_texts, n_tokens, times)}
        return Vectors(shortened(values, spec.dimensions, self._normalizes), n_tokens, told)

    @asynccontextmanager
    async def _taken(
        self, caller: bytes, n_tokens: int, times: EmbeddingTimes, *, was_accepted: bool
    ) -> AsyncIterator[Mapping[str, str]]:
        """The time in which tokens are used that the limits of a tenant allow; with the headers that tell of them. A call that
        fails has used none. One whose client leaves has, if an embedder has got any of its texts. Raises: Refusal."""
        if (limits := self._limits) is None or was_accepted:
            yield {}
            return
        taken, are_used = await limits.take_tokens(caller, n_tokens), False
        try:
            yield taken.headers
            are_used = True
        except asyncio.CancelledError:
            are_used = bool(times.n_sent)
            raise
        finally:
            limits.settle(taken, are_used=are_used)

    def _ended(
        self, spec: EmbeddingSpec, caller: bytes, n_texts: int, n_tokens: int, times: EmbeddingTimes
    ) -> Mapping[str, str]:
        """The line of the log and the trace of a call that is over; returns the headers of the trace."""
        total_s = asyncio.get_running_loop().time() - times.began_s
        self._access_log.embedded(spec.names, self.model_name, n_texts, n_tokens, total_s)
        if self._trace is None:
            return {}
        tenant = self._access_log.tenant_of(caller) if caller else ""
        return self._trace(EndedEmbedding(spec, self.model_name, tenant, n_texts, n_tokens, times))

    def _n_texts(self, spec: EmbeddingSpec) -> int:
        """How many texts are asked for. Raises: Refusal if that, or the dimensions, are not allowed."""
        n_texts = len(spec.texts if spec.texts is not None else spec.ids or ())
        if not 1 <= n_texts <= self._max_texts:
            raise invalid(spec.texts_field, f"1 to {self._max_texts} texts", n_texts)
        if spec.dimensions is not None and not 1 <= spec.dimensions <= self._dimensions:
            raise invalid("dimensions", f"1 to {self._dimensions}, as this model's vectors have", spec.dimensions)
        return n_texts

    def _prompt(self, spec: EmbeddingSpec) -> str:
        """What stands before each text. Raises: Refusal."""
        name = spec.prompt_name
        if name and name not in self._prompts:
            raise invalid("prompt_name", f"one of {list(self._prompts)}, the prompts of this model", name)
        if spec.texts is None:
            if name:
                raise invalid("prompt_name", "null beside token ids, which are taken as they are", name)
            return ""
        return self._prompts.get(self._default_prompt if name is None else name, "")

    async def _tokenised(self, spec: EmbeddingSpec, prompt: str, caller: bytes) -> list[np.ndarray]:
        limit = self.text.limit(spec.truncate_prompt_tokens)
        if spec.texts is None:
            return self.text.check(spec.ids or (), spec.texts_field, limit)
        if sum(map(len, spec.texts)) + len(prompt) * len(spec.texts) <= _INLINE_CHARACTERS:
            return self.text.encode(spec.texts, spec.texts_field, limit, prompt)
        encode = partial(self.text.encode, spec.texts, spec.texts_field, limit, prompt)
        return await self._threads.run(caller, encode)


def load_embedding_text(settings: GatewaySettings) -> EmbeddingText | None:
    """The tokenizer of the embedding model, which takes tens of milliseconds. None if the server has no such model, or if that
    has another tokenizer than at the start: the embedder would get ids that mean other texts."""
    if not settings.embedding_model:
        return None
    folder = settings.embedding_folder
    text = EmbeddingText(Path(folder), settings.embedding_length)
    try:
        refuse_other_text(folder, read_text_digest(folder), settings.embedding_digests)
    except ConfigError as error:
        structlog.get_logger().error("no embeddings from this gateway", reason=str(error))
        return None
    return text


def shortened(vectors: np.ndarray, dimensions: int | None, normalizes: bool) -> np.ndarray:
    """The first components of vectors (Kusupati et al., 2022): float32 [n, all] -> [n, dimensions]. `normalizes`: they get
    length 1 again."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    cut = vectors[:, :dimensions]
    if not normalizes:
        return cut
    return cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), np.float32(1e-12))


def embeddings_for(model: Embeddings | None, asked: str) -> Embeddings:
    """The embedding model of this server, if it is the one `asked` for; an empty name asks for any. Raises: Refusal."""
    if model is None:
        raise Refusal("not_found", "this server computes no embeddings: it was started without --embedding-model")
    model.check(asked)
    return model
