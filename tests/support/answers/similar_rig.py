"""A gateway with an embedder whose vectors are a formula, and a cache directory that keeps answers to similar questions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from actors.cache_directory.directory_actor import DirectoryActor
from tests.support.answers.directory import add_directory
from tests.support.embedding.embedders import add_embedder, gateway_fields
from tests.support.gateway.gateway_rig import Rig, rig

EVERYTHING = 0.0  # a threshold: the vectors of the formula have no negative components
CHAT = "/v1/chat/completions"


@asynccontextmanager
async def similar_rig(folder: Path, **settings: Any) -> AsyncIterator[tuple[Rig, httpx.AsyncClient, DirectoryActor]]:
    """A gateway for which all questions of one circle are similar, unless `settings` say otherwise."""
    fields = {"answer_cache": "semantic", "semantic_threshold": EVERYTHING, "semantic_wait_s": 20.0, **gateway_fields()}
    async with rig(**{**fields, **settings}) as r, r.http() as http:
        await add_embedder(r)
        yield r, http, await add_directory(r, folder)


async def chat(http: httpx.AsyncClient, text: str, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    """The answer to one question."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 6, "temperature": 0, **fields}
    answer = await http.post(CHAT, json=body, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer


async def is_kept(r: Rig, directory: DirectoryActor, n_answers: int) -> None:
    """Wait until the directory has so many answers."""
    await r.cluster.wait_until(lambda: directory.statistics()["similar_answers"] == n_answers)
