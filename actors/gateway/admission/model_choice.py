"""Which served model answers a new request: the one that it names, or the fallback model while no replica of the main is ready.

    a replica of the main model is ready                                    the main model
    none is, for `fallback_after_s`, and one of the fallback is ready       the fallback model
    the same, and an answer of the main model is kept for equal requests    the main model, with that answer
    neither is ready within RETURN_S after that                             the main model, for which the request waits

An accepted request is never moved from one model to another. One that the fallback model cannot answer waits for the main one:
the context of the fallback is too short for it, token ids mean other text there, or the request forbids it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum

import msgspec

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.dispatch.post import Post
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.model_names import is_same_model
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request_spec import RequestSpec

RETURN_S = 5.0  # how long a request is held while neither model can answer: a worker that was killed is back by then
_LOOK_S = 0.01  # between two looks while requests are held
_MAIN, _FALLBACK = 0, 1  # numbers of models


class Answering(Enum):
    """Which model answers."""

    MAIN = "main"
    FALLBACK = "fallback"


def choose(after_s: float, down_s: float, *, is_main_ready: bool, is_fallback_ready: bool) -> Answering | None:
    """The model that answers now; None: wait a little. `down_s`: for how long the main model has had no ready replica."""
    if is_main_ready:
        return Answering.MAIN
    if is_fallback_ready:
        return Answering.FALLBACK if down_s >= after_s else None
    return Answering.MAIN if down_s >= after_s + RETURN_S else None


class ModelChoice:
    """Builds the specifications of requests for several models; it stands in place of the builder of the only one."""

    def __init__(
        self,
        models: ServedModels,
        builders: Sequence[SpecBuilder],
        is_ready: Callable[[int], bool],
        check_main: Callable[[], None],
        now_s: Callable[[], float],
        has_kept: Callable[[NewRequest, RequestSpec], bool] | None,
    ) -> None:
        """`builders`: by number of the model. `is_ready`: whether a replica of this model computes now. `check_main` raises the
        Refusal of a main model that has never been ready. `now_s`: the monotonic clock. `has_kept`: whether the answer to a
        request of the main model is kept; None: no answers are."""
        self._models, self.builders, self._is_ready = models, builders, is_ready
        self._check_main, self._now_s, self._has_kept = check_main, now_s, has_kept
        self._after_s = models.main.settings.fallback_after_s
        self._has_same_tokens = models.main.identity.tokenizer == models.at(_FALLBACK).identity.tokenizer
        self._down_since_s: float | None = None  # since when the main model is known to have no ready replica
        self._deciding: asyncio.Task[Answering] | None = None  # what the requests that are held wait for

    def validate(self, new: NewRequest) -> None:
        """As `SpecBuilder.validate`, for the model that the request names."""
        self.builders[self._named(new)].validate(new)

    async def build(self, new: NewRequest, created_s: float) -> RequestSpec:
        """As `SpecBuilder.build`, for the model that is to answer. Raises: Refusal."""
        if number := self._named(new):
            return msgspec.structs.replace(await self.builders[number].build(new, created_s), model=number)
        if not new.terms.allow_fallback or await self._answering() is Answering.MAIN:
            self._check_main()
            return await self.builders[_MAIN].build(new, created_s)
        if (kept := await self._of_kept(new, created_s)) is not None:
            return kept
        try:
            return await self._fallen_back(new, created_s)
        except Refusal as refusal:
            self._check_main_instead(refusal)
            return await self.builders[_MAIN].build(new, created_s)

    def is_of_main(self, new: NewRequest) -> bool:
        """True unless the fallback model would answer this request now."""
        return not self._named(new) and not (new.terms.allow_fallback and self._now() is Answering.FALLBACK)

    def _named(self, new: NewRequest) -> int:
        """The number of the model that a request names; that of the main one if it names none, or one that is not served."""
        others = (model.number for model in self._models.all[1:] if new.model and is_same_model(new.model, model.name))
        return next(others, _MAIN)

    async def _of_kept(self, new: NewRequest, created_s: float) -> RequestSpec | None:
        """The specification for the main model if its answer is kept, which needs no replica; else None."""
        if self._has_kept is None:
            return None
        with suppress(Refusal):
            spec = await self.builders[_MAIN].build(new, created_s)
            return spec if self._has_kept(new, spec) else None
        return None

    async def _fallen_back(self, new: NewRequest, created_s: float) -> RequestSpec:
        """The specification for the fallback model. Raises: Refusal if that cannot answer the request."""
        terms, name = new.terms, self._models.at(_FALLBACK).name
        has_ids = new.ids is not None or terms.logit_bias or terms.allowed_token_ids or terms.stop_tokens
        if has_ids and not self._has_same_tokens:
            raise Refusal("invalid", f"expected no token ids, because the tokenizer of {name} is another one")
        instead = msgspec.structs.replace(new, model="")
        self.builders[_FALLBACK].validate(instead)
        spec = await self.builders[_FALLBACK].build(instead, created_s)
        return msgspec.structs.replace(spec, model=_FALLBACK, fallback=name)

    def _check_main_instead(self, refusal: Refusal) -> None:
        """Return if the main model can take a request that the fallback model refuses. Raises: Refusal that says both."""
        try:
            self._check_main()
        except Refusal as main:
            detail = f"{main.cause}; {self._models.at(_FALLBACK).name} cannot answer instead: {refusal.detail}"
            raise Refusal(main.code, detail, retry_after_s=main.retry_after_s) from None

    async def _answering(self) -> Answering:
        """The model that answers a request that may be answered by both. All requests that are held wait for one decision."""
        if (now := self._now()) is not None:
            return now
        if self._deciding is None:
            self._deciding = asyncio.ensure_future(self._decide())
        return await asyncio.shield(self._deciding)

    async def _decide(self) -> Answering:
        try:
            while (found := self._now()) is None:
                await asyncio.sleep(_LOOK_S)
            return found
        finally:
            self._deciding = None

    def _now(self) -> Answering | None:
        """The model that answers now; None: it is not decided yet."""
        if self._is_ready(_MAIN):
            self._down_since_s = None
            return Answering.MAIN
        now_s = self._now_s()
        if self._down_since_s is None:
            self._down_since_s = now_s
        down_s = now_s - self._down_since_s
        return choose(self._after_s, down_s, is_main_ready=False, is_fallback_ready=self._is_ready(_FALLBACK))


def choice_of(builder: SpecBuilder, manager: RequestManager, post: Post) -> ModelChoice | None:
    """The choice between the models of a gateway; None if it serves one. `builder`: that of the main model."""
    others = manager.models.all[1:]
    if not others:
        return None
    builders = [builder, *(SpecBuilder(one.settings, one.text, one.identity.fingerprint) for one in others)]
    replicas, equals = manager.dispatcher.failover.replicas, manager.equals

    def is_ready(model: int) -> bool:
        return bool(replicas.ready(post.living("scheduler"), post.living("worker"), model))

    def has_kept(new: NewRequest, spec: RequestSpec) -> bool:
        return equals.has_kept(equals.access(manager.gate.let_in(spec), new.cache_use, has_seed=new.has_seed))

    keeps = None if equals.kept is None else has_kept
    return ModelChoice(manager.models, builders, is_ready, manager.gate.check_main, post.now_s, keeps)
