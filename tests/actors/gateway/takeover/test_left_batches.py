"""The requests of a batch end one after the other, and its answer is sent when the last one has. Until then all of them are
kept, however long that takes, because the next incarnation of the gateway makes the answer of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from actors.gateway.custody.hold import HeldResponse, LeftConnection
from actors.gateway.http.endpoints.generate import BATCH_PATH
from actors.gateway.journal import retained as bounds
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.takeover.left_answers import LeftAnswers
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.journal_file import SERVED
from tests.support.gateway.request_examples import request_of, spec_of
from tests.support.waiting import until

RETENTION_S = 600.0
_NOBODY = cast(Any, None)


def ended(request_id: str, number: int) -> Request:
    """A request without a key that is over."""
    request = request_of(msgspec.structs.replace(spec_of(), request=request_id, is_resumable=True, ends_with_client=True))
    request.number = number
    request.sequences[0].end(Ended(reason="stop"))
    return request


class Custody:
    """A custodian with the connection of one batch, which has no client any more."""

    async def claim(self) -> list[LeftConnection]:
        response = HeldResponse("batch-1", BATCH_PATH, -1, 0, 0, keeps_alive=True)
        return [LeftConnection("1", _NOBODY, response)]

    def drop_claimed(self) -> None:
        pass


async def test_what_has_ended_is_kept_while_the_answer_is_under_way() -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            wanted = [{"tokens": [1, n], "max_tokens": n, "temperature": 0} for n in (1, 3)]
            answer = asyncio.ensure_future(http.post("/v1/batch", json={"requests": wanted}))
            await until(lambda: len(scheduler.running) == 2)
            batch = scheduler.submits[0].request
            scheduler.step(1)
            await until(lambda: len(r.manager.unfinished.all) == 1)
            for _ in range(2):
                r.manager.finished.expire(r.gateway.now_s() + 10 * RETENTION_S, takes_writes=True)
            assert r.manager.find(batch) is not None
            scheduler.step(9)
            assert (await answer).status_code == 200
            r.manager.finished.expire(r.gateway.now_s() + 10 * RETENTION_S, takes_writes=True)
            assert [r.manager.find(one) for one in (batch, f"{batch}.1")] == [None, None], "nothing is kept for ever"


async def test_what_has_ended_is_kept_until_its_connection_goes_on(monkeypatch: Any) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYLESS", 1)
    deleted = list[int]()
    journal = cast(Any, SimpleNamespace(delete=deleted.append, finish=lambda number, record: None, read=lambda number: None))
    kept, now_s = RetainedRequests(journal, SERVED, RETENTION_S), asyncio.get_running_loop().time()
    left, errors = LeftAnswers(cast(Any, Custody()), lambda error: errors.append(error)), list[BaseException]()
    await left.claim()
    left.hold_batches(kept)
    for number, name in enumerate(("batch-1", "batch-1.1", "batch-10", "batch-10.1"), 1):
        kept.keep(ended(name, number), now_s - 10 * RETENTION_S)
    assert deleted == [3], "of those that are not held, only the bound's number is kept"
    kept.read("batch-1.1", now_s - RETENTION_S)
    kept.expire(now_s)
    assert deleted == [3, 4]
    manager = SimpleNamespace(finished=SimpleNamespace(retained=kept))
    left.go_on(cast(Any, SimpleNamespace(manager=manager)), None)
    await left.wait()
    assert (errors, deleted) == ([], [3, 4, 1]), "the bound counts again"
    kept.expire(now_s)
    assert len(kept) == 1, "what was kept for the batch has ended now"
    kept.expire(asyncio.get_running_loop().time() + RETENTION_S + 1.0)
    assert (deleted, len(kept)) == ([3, 4, 1, 2], 0)
