"""However a request comes and goes, nothing of it counts for its caller afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S

BODY: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": ("/v1/completions", {"prompt": "a"}),
    "streamed": ("/v1/completions", {"prompt": "a", "stream": True}),
    "several": ("/v1/completions", {"prompt": ["a", "b"], "n": 2}),
    "batch": ("/v1/batch", {"requests": [{"prompt": "a", **BODY}, {"prompt": "b", **BODY}]}),
    "background": ("/v1/responses", {"input": "a", "background": True}),
    "refused": ("/v1/completions", {"prompt": "a", "top_p": 7}),
}


def is_empty(r: Rig) -> bool:
    gate = r.manager.gate
    return not (gate.n_active or gate.n_reserved or gate.queued.shares.n_callers or gate._sequences.n_callers)


async def post(http: httpx.AsyncClient, name: str) -> httpx.Response:
    path, fields = CALLS[name]
    limits = {"max_output_tokens": 6} if path == "/v1/responses" else {} if path == "/v1/batch" else BODY
    return await http.post(path, json={**limits, **fields})


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_automatic", [True, False])
async def test_by_whatever_way_it_comes(name: str, is_automatic: bool) -> None:
    async with rig(with_scheduler=False, caller_header="x-key") as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=is_automatic)
        asked = asyncio.ensure_future(post(http, name))
        if not is_automatic:
            await r.cluster.wait_until(lambda: bool(scheduler.running) or asked.done())
            scheduler.is_automatic = True
            scheduler._go_on()
        async with asyncio.timeout(DEADLINE_S):
            assert (await asked).status_code == (400 if name == "refused" else 200)
        await r.cluster.wait_until(lambda: is_empty(r))


async def test_when_it_is_cancelled() -> None:
    async with rig(with_scheduler=False, caller_header="x-key") as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        asked = asyncio.ensure_future(post(http, "streamed"))
        await r.cluster.wait_until(lambda: bool(scheduler.running))
        assert not is_empty(r)
        r.manager.cancel(r.manager.unfinished.all[0])
        async with asyncio.timeout(DEADLINE_S):
            await asked
        await r.cluster.wait_until(lambda: is_empty(r))
