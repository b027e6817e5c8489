"""Makes all caches of the server forget: the answers of every gateway, and the pages of every scheduler.

Nothing waits for a reset, and nothing depends on it: a request that finds something a moment before computes less. What is
running goes on, and keeps its pages until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from actors.gateway.cache_reset.page_resets import PageResets
from actors.gateway.other_gateways.owners import Owners
from actors.gateway.other_gateways.questions import fetched
from actors.gateway.other_gateways.unix_http import post
from actors.gateway.requests.refusals import Refusal
from actors.pages.answers.answer_cache import AnswerCache, forgetting_of
from actors.pages.forgetting import Forgetting
from messages.caches.equal import ForgetAnswers

FORGET_PATH = "/forwarded/cache/forget"


class AnswersToForget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one gateway asks of another: a `Forgetting`."""

    scope: bytes | None
    tokens: bytes
    older_than_s: float
    model: int | None = None


class Forgotten(msgspec.Struct, frozen=True):
    """What was forgotten. Gateways and the directory keep the same answers for equal requests: those count once."""

    answers: int
    pages: int = 0


class CacheReset:
    """The caches of the whole server, as one gateway reaches them. `kept`: its own answers; None: it keeps none."""

    def __init__(self, kept: AnswerCache | None, pages: PageResets, owners: Owners, wall_s: Callable[[], float]) -> None:
        self._kept, self._pages, self._owners, self._wall_s = kept, pages, owners, wall_s

    async def forget(self, wanted: Forgetting) -> Forgotten:
        """Forget everywhere. Raises: Refusal if a process does not answer; others have forgotten then."""
        call = post(FORGET_PATH, msgspec.json.encode(AnswersToForget(*wanted)))
        n_own, others = self.forget_answers(wanted), self._owners.other_sockets
        (n_pages, n_shared, n_similar), n_others = await asyncio.gather(
            self._pages.forget(wanted), asyncio.gather(*(_answers_of(socket, call) for socket in others))
        )
        return Forgotten(max(n_own, n_shared, *n_others) + n_similar, n_pages)

    def forget_answers(self, wanted: Forgetting) -> int:
        """Forget answers of this gateway; returns how many."""
        return 0 if self._kept is None else self._kept.forget(wanted, self._wall_s())

    def directory_forgets(self, message: ForgetAnswers) -> None:
        """The cache directory has forgotten, so this gateway does, which may have got answers of it meanwhile."""
        self.forget_answers(forgetting_of(message))


async def _answers_of(socket: str, call: bytes) -> int:
    answer = await fetched(socket, call)
    if answer.status_code != 200:
        raise Refusal("unavailable", f"another gateway has answered with status {answer.status_code}", retry_after_s=1.0)
    return msgspec.json.decode(answer.body, type=Forgotten).answers
