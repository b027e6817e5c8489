"""A repeated workload at a real server: what each cache of answers is worth in requests/s, and what it answers wrongly."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import httpx
import msgspec
import psutil

from ops.bench.own_server import OwnServer, own_server
from ops.bench.semantic.workload import PosedQuestion, made_up_texts

_CLIENTS = 8
_N_BEFORE = 24  # requests that are not measured: what a server computes for the first time takes longer
_CHAT = "/v1/chat/completions"
_TIMEOUT_S = 600.0


class ServedFigures(msgspec.Struct, frozen=True):
    """One run of a workload. `hits`: by equal text; `similar`: by a similar question; `wrong`: of these, answers that were not
    computed for the question. `processor_s`: of all processes of the server, which other work on the machine changes little."""

    cache: str
    run: str  # cold: nothing was kept before; warm: the same workload again
    requests: int
    wall_s: float
    hits: int
    similar: int
    wrong: int
    p50_ms: float
    processor_s: float

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.requests / self.wall_s

    @property
    def hit_rate(self) -> float:
        """The share of requests that were not computed."""
        return (self.hits + self.similar) / self.requests


def serve_workload(
    cache: str,
    threshold: float,
    flags: Sequence[str],
    workload: Sequence[PosedQuestion],
    questions: Sequence[Sequence[str]],
    max_tokens: int,
) -> list[ServedFigures]:
    """The workload at a new server, twice. `cache`: as `--answer-cache`; `flags`: more of `supervisor start`."""
    name = f"semantic {threshold:g}" if cache == "semantic" else cache
    arguments = [*flags, "--answer-cache", cache, "--set", f"gateway.semantic_threshold={threshold}"]
    with own_server(arguments) as server:
        return asyncio.run(
            _runs(_Asking(server, questions, max_tokens), name, ("cold", "warm") if cache != "off" else ("cold",), workload)
        )


async def _runs(asking: _Asking, name: str, runs: Sequence[str], workload: Sequence[PosedQuestion]) -> list[ServedFigures]:
    async with asking.http:
        for first in range(0, _N_BEFORE, _CLIENTS):
            texts = made_up_texts(_N_BEFORE)[0][first : first + _CLIENTS]
            await asyncio.gather(*(asking.ask(text) for text in texts))
        return [await asking.run(name, run, workload) for run in runs]


class _Asking:
    """Clients that ask one question after the other, all of them from one list."""

    def __init__(self, server: OwnServer, questions: Sequence[Sequence[str]], max_tokens: int) -> None:
        self.http, self._process = httpx.AsyncClient(base_url=server.url, timeout=_TIMEOUT_S), psutil.Process(server.pid)
        self._questions, self._max_tokens = questions, max_tokens
        self._computed: dict[str, set[int]] = {}  # for which questions an answer was computed

    async def run(self, name: str, run: str, workload: Sequence[PosedQuestion]) -> ServedFigures:
        """Ask all of a workload."""
        found, times_s, left = Counter[str](), list[float](), iter(workload)
        similar: list[tuple[str, int]] = []

        async def client() -> None:
            for asked in left:
                began_s = time.perf_counter()
                text, how = await self.ask(self._questions[asked.question][asked.words])
                times_s.append(time.perf_counter() - began_s)
                found[how] += 1
                if how == "semantic":
                    similar.append((text, asked.question))
                elif not how:
                    self._computed.setdefault(text, set()).add(asked.question)

        began_s, before_s = time.perf_counter(), self._processor_s()
        await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        wall_s = time.perf_counter() - began_s
        n_wrong = sum(question not in self._computed.get(text, ()) for text, question in similar)
        p50_ms = sorted(times_s)[len(times_s) // 2] * 1e3
        used_s = self._processor_s() - before_s
        return ServedFigures(name, run, len(workload), wall_s, found["hit"], found["semantic"], n_wrong, p50_ms, used_s)

    def _processor_s(self) -> float:
        """Of all processes of the server until now."""
        times = [process.cpu_times() for process in (self._process, *self._process.children(recursive=True))]
        return sum(one.user + one.system for one in times)

    async def ask(self, question: str) -> tuple[str, str]:
        """(the answer, how it was found: "" if it was computed)."""
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "temperature": 0, "max_tokens": self._max_tokens}
        answer = await self.http.post(_CHAT, json=body)
        answer.raise_for_status()
        return answer.json()["choices"][0]["message"]["content"], answer.headers.get("x-cache", "")
