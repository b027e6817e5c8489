"""When the tokens of a step are told to those who wait for them."""

from __future__ import annotations

import asyncio

from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import until


async def test_watchers_are_told_once_for_all_steps_of_a_commit() -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            body = {"tokens": [1, 2], "max_tokens": 9, "temperature": 0, "request_id": "one"}
            answer = asyncio.ensure_future(http.post("/v1/generate", json=body))
            await until(lambda: bool(scheduler.running))
            request = r.manager.find("one")
            assert request is not None
            await until(lambda: request.is_recorded)
            told = list[int]()
            request.watchers.append(lambda: told.append(request.n_generated))
            for _ in range(3):  # in one turn of the event loop, so they come in one batch of mail
                scheduler.step()
            await until(lambda: request.n_generated == 3)
            await until(lambda: bool(told))
            assert told == [3]
            scheduler.step()
            await until(lambda: told == [3, 4])
            scheduler.step(9)
            assert (await answer).status_code == 200
    assert request.is_over
