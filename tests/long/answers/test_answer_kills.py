"""Questions of two callers with kept answers, while cache directory, embedder and gateway are killed again and again: each
question is answered, with its own answer or that of a similar question of the same caller; and the caches are warm again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from ops.bench.semantic.workload import read_questions
from tests.support.embedding.embedders import packaged_folder
from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

VICTIMS = ("cache_directory/0", "embedder/0", "gateway/0")
CALLERS = ("me", "you")
THRESHOLD, ROUNDING = 0.85, 0.002
N_QUESTIONS, N_KILLS, N_BETWEEN, AT_A_TIME = 20, 12, 60, 8
WARM_S = 60.0
COMPLETIONS = "/v1/completions"
FLAGS = (
    *("--model", "hash-chain", "--embedding-model", "minilm", "--answer-cache", "semantic", "--gateways", "2"),
    # a long wait, so that a busy machine makes no look-up late
    *("--set", f"gateway.semantic_threshold={THRESHOLD}", "--set", "gateway.semantic_wait_s=20"),
    # equal requests find their answers for two seconds; after that it is a similar question that does
    *("--set", "gateway.answer_cache_ttl_s=2"),
    *("--set", "gateway.caller_header=x-caller", "--set", "cache_directory.answers_file_s=0.5"),
)


def texts_of() -> dict[str, list[str]]:
    """The texts of each caller: the same questions in other words, so that an answer shows whose it is."""
    questions = read_questions()[:N_QUESTIONS]
    return {caller: [text for words in questions for text in words[at::2]] for at, caller in enumerate(CALLERS)}


class Asker:
    """Asks until there is an answer. `n`: answers by how they were found."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.n = http, Counter[str]()
        self.similar: list[tuple[str, str, str]] = []  # caller, question, answer
        self.equal: list[tuple[str, str]] = []  # question, answer

    async def ask(self, caller: str, text: str, control: str = "") -> str:
        headers = {"x-caller": caller, **({"cache-control": control} if control else {})}
        body = {"prompt": text, "max_tokens": 12, "temperature": 0}
        async with asyncio.timeout(120.0):
            answer = await self._answered(body, headers)
        found, how = answer.json()["choices"][0]["text"], answer.headers.get("x-cache", "computed")
        self.n[how] += 1
        if how == "semantic":
            assert float(answer.headers["x-cache-similarity"]) >= THRESHOLD
            self.similar.append((caller, text, found))
        else:
            self.equal.append((text, found))
        return found

    def has_found_enough(self) -> bool:
        """True if equal and similar requests have found answers; how soon is a matter of the machine's speed."""
        n_similar = Counter(caller for caller, _, _ in self.similar)
        return self.n["hit"] > 0 and min(n_similar[caller] for caller in CALLERS) > N_BETWEEN / 2

    async def _answered(self, body: dict[str, object], headers: dict[str, str]) -> httpx.Response:
        """Asks again where a gateway died before it had accepted the request."""
        while True:
            try:
                answer = await self.http.post(COMPLETIONS, json=body, headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                assert answer.status_code == 200, answer.text
                return answer
            await asyncio.sleep(float(answer.headers.get("retry-after", "0.1")))


async def vectors_of(http: httpx.AsyncClient, texts: list[str]) -> dict[str, np.ndarray]:
    answer = await http.post("/v1/embeddings", json={"input": texts})
    assert answer.status_code == 200, answer.text
    rows = [np.asarray(one["embedding"], np.float32) for one in answer.json()["data"]]
    return {text: row / np.linalg.norm(row) for text, row in zip(texts, rows, strict=True)}


async def all_requests(asker: Asker, server: RealServer, texts: dict[str, list[str]]) -> None:
    """The repeated workload, until all kills are done and enough was found. Before each kill its victim is up again, and
    so many questions more are answered."""
    rng, progress, is_over = np.random.default_rng(7), asyncio.Condition(), False

    async def work() -> None:
        while not is_over:
            caller = CALLERS[rng.integers(len(CALLERS))]
            await asker.ask(caller, texts[caller][rng.integers(len(texts[caller]))])
            async with progress:
                progress.notify_all()

    async def kills() -> None:
        nonlocal is_over
        killed = dict.fromkeys(VICTIMS, 0)
        for number in range(N_KILLS):
            victim = VICTIMS[number % len(VICTIMS)]
            await asyncio.to_thread(server.wait_new_incarnation, victim, killed[victim])
            before = asker.n.total()
            async with progress:
                await progress.wait_for(lambda before=before: asker.n.total() >= before + N_BETWEEN)
            killed[victim] = await asyncio.to_thread(server.kill, victim, after=killed[victim])
        async with progress:
            await progress.wait_for(asker.has_found_enough)
        is_over = True

    await asyncio.gather(kills(), *(work() for _ in range(AT_A_TIME)))


def check(asker: Asker, own: dict[str, str], texts: dict[str, list[str]], vectors: dict[str, np.ndarray]) -> None:
    """Every answer is the computed one of its text, or that of a text of the same caller which is similar enough."""
    assert [text for text, found in asker.equal if found != own[text]] == []
    for caller, text, found in asker.similar:
        sources = [other for other in texts[caller] if own[other] == found]
        assert sources, f"{text!r} of {caller!r} has an answer that no question of this caller has"
        assert max(float(vectors[text] @ vectors[source]) for source in sources) >= THRESHOLD - ROUNDING


async def drill(server: RealServer) -> None:
    texts = texts_of()
    async with httpx.AsyncClient(base_url=server.url, timeout=60.0) as http:
        asker = Asker(http)
        own = {text: await asker.ask(caller, text, "no-store") for caller in CALLERS for text in texts[caller]}
        assert len({*own.values()}) == len(own), "an answer shows to which question it belongs"
        vectors = await vectors_of(http, [*own])
        asker.n.clear()
        await all_requests(asker, server, texts)
        check(asker, own, texts, vectors)
        await asyncio.to_thread(server.wait_serving)
        await is_warm_again(asker, texts)
        check(asker, own, texts, vectors)


async def is_warm_again(asker: Asker, texts: dict[str, list[str]]) -> None:
    """Whatever was lost is computed once; then every question finds an answer, at either gateway."""
    async with asyncio.timeout(WARM_S):
        while True:
            asker.n.clear()
            for caller in CALLERS:
                for text in texts[caller]:
                    await asker.ask(caller, text)
            if not asker.n["computed"]:
                return


def test_no_question_is_lost_and_no_answer_is_wrong(tmp_path: Path) -> None:
    packaged_folder()
    with real_server(*WITH_SPARES, *FLAGS, "--state-dir", str(tmp_path / "state")) as server:
        asyncio.run(drill(server))
        log = server.log()
    assert "fault" not in log.lower() or "Traceback" not in log, log[-3000:]
