"""Conversations that return, one request at a time: how soon the first token comes, and what the answers are."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from messages.client import AsyncClient
from messages.errors import ClientError
from messages.run_dir import run_dir_of, zeromq_endpoint
from ops.bench.own_server import OwnServer
from supervisor.operator.calls import ask_status

_DEADLINE_S = 600.0  # of a request
_IDS = range(100, 20_000)  # which every vocabulary has that is worth a measurement


class TurnFailed(Exception):
    """A request failed; the text says how."""


class TierFigures(msgspec.Struct, frozen=True):
    """What the host tier of a server has moved since its scheduler began, in pages. `ahead`: sequences that entered their slots
    ahead of their loads."""

    stored: int
    loaded: int
    failed: int
    load_s: float
    ahead: int = 0


def make_prompts(n: int, n_tokens: int, seed: int) -> list[list[int]]:
    """Different prompts of token ids, one for each conversation."""
    rng = random.Random(seed)
    return [rng.choices(_IDS, k=n_tokens) for _ in range(n)]


class AskedServer:
    """One server that is asked, by ZeroMQ, because a model without a tokenizer has no texts. `first_s`: seconds to the first
    token, by conversation and turn; `answers`: the tokens alike; `log`: of the server."""

    def __init__(self, server: OwnServer, n_conversations: int, n_new: int) -> None:
        self._server, self._n_new = server, n_new
        self.log: tuple[Path, int] = server.log, 0  # and the byte from which on it counts
        self._client = AsyncClient(zeromq_endpoint(server.run_dir))
        self.first_s: list[list[float]] = [[] for _ in range(n_conversations)]
        self.answers: list[list[list[int]]] = [[] for _ in range(n_conversations)]

    async def ask(self, conversation: int, prompt: Sequence[int]) -> None:
        """One turn of a conversation. Raises: TurnFailed."""
        options = {"max_tokens": self._n_new, "temperature": 0.0, "ignore_eos": True, "deadline_s": _DEADLINE_S}
        began_s, first_s, tokens = time.perf_counter(), 0.0, list[int]()
        try:
            async for piece in self._client.stream(tokens=prompt, **options):
                if piece.ids and not tokens:
                    first_s = time.perf_counter() - began_s
                tokens += piece.ids
        except ClientError as error:
            raise TurnFailed(f"conversation {conversation}: {error}") from None
        self.first_s[conversation].append(first_s)
        self.answers[conversation].append(tokens)

    def forget(self) -> None:
        """The turns until now do not count."""
        for turns in (*self.first_s, *self.answers):
            turns.clear()

    def skip_log(self) -> None:
        """What the server has logged until now does not count."""
        self.log = (self.log[0], self.log[0].stat().st_size)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def tier(self) -> TierFigures:
        """What the host tier has moved, as far as the scheduler has told."""
        children = ask_status(run_dir_of(self._server.port)).children
        sums = next(child.statistics for child in children if child.name == "scheduler/0")
        counts = (int(sums.get(f"host_{name}", 0)) for name in ("stored", "loaded", "failed"))
        return TierFigures(*counts, load_s=sums.get("host_load_s", 0.0), ahead=int(sums.get("host_ahead", 0)))
