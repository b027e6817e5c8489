"""Conversations that return, one request at a time: how soon the first token comes, and what the answers are."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import msgspec

from messages.run_dir import run_dir_of
from ops.bench.http.completion_events import MeasuredAnswer
from ops.bench.http.stream import ConnectionPool, Target
from ops.bench.own_server import OwnServer
from supervisor.operator.calls import ask_status

_IDS = range(100, 20_000)  # which every vocabulary has that is worth a measurement


class TurnFailed(Exception):
    """A request failed; the text says how."""


class TierFigures(msgspec.Struct, frozen=True):
    """What the host tier of a server has moved since its scheduler began, in pages."""

    stored: int
    loaded: int
    failed: int
    load_s: float


def make_prompts(n: int, n_tokens: int, seed: int) -> list[list[int]]:
    """Different prompts of token ids, one for each conversation."""
    rng = random.Random(seed)
    return [rng.choices(_IDS, k=n_tokens) for _ in range(n)]


class AskedServer:
    """One server that is asked. `first_s`: seconds to the first token, by conversation and turn; `texts`: the answers alike."""

    def __init__(self, server: OwnServer, n_conversations: int, n_new: int) -> None:
        self._server, self._n_new = server, n_new
        self._target = Target(server.url)
        self._pool = ConnectionPool(self._target)
        self.first_s: list[list[float]] = [[] for _ in range(n_conversations)]
        self.texts: list[list[str]] = [[] for _ in range(n_conversations)]

    async def ask(self, conversation: int, prompt: Sequence[int]) -> None:
        """One turn of a conversation. Raises: TurnFailed."""
        body = {"prompt": list(prompt), "max_tokens": self._n_new, "temperature": 0, "stream": True, "ignore_eos": True}
        answer = MeasuredAnswer(time.perf_counter(), text=[])
        await self._pool.ask(self._target.request_bytes("/v1/completions", body), answer)
        if answer.error or not answer.text_s:
            raise TurnFailed(f"conversation {conversation}: {answer.error or 'no text'} {answer.detail}")
        self.first_s[conversation].append(answer.text_s[0] - answer.sent_s)
        self.texts[conversation].append("".join(answer.text or []))

    def forget(self) -> None:
        """The turns until now do not count."""
        for turns in (*self.first_s, *self.texts):
            turns.clear()

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def tier(self) -> TierFigures:
        """What the host tier has moved, as far as the scheduler has told."""
        children = ask_status(run_dir_of(self._server.port)).children
        sums = next(child.statistics for child in children if child.name == "scheduler/0")
        counts = (int(sums.get(f"host_{name}", 0)) for name in ("stored", "loaded", "failed"))
        return TierFigures(*counts, load_s=sums.get("host_load_s", 0.0))
