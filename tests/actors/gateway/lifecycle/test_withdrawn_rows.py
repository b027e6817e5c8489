"""Rows on their way into the journal do not keep their requests: one that was withdrawn is gone before they are recorded."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.journal_rig import COMPLETION, journal_rig
from tests.support.waiting import DEADLINE_S, until


@pytest.mark.slow
async def test_a_running_request_is_recorded_again_while_rows_of_a_withdrawn_one_wait() -> None:
    async with journal_rig(journal_buffer_bytes=1) as (r, scheduler, disk), r.http() as http:
        keys = [{"Idempotency-Key": key} for key in ("running", "withdrawn")]
        running = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION, headers=keys[0]))
        await until(lambda: bool(scheduler.running))
        scheduler.step(1)
        await until(lambda: scheduler.acked == 1)
        disk.refuse()
        disk.gate.clear()
        withdrawn = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION, headers=keys[1]))
        await until(lambda: len(scheduler.running) == 2)
        gone = ref(r.manager.unfinished.all[1])
        scheduler.step(2)
        publisher, one = r.manager._publisher, r.manager.unfinished.all[0]
        await until(lambda: len(publisher._in_journal) == 1)
        disk.gate.set()
        assert (await asyncio.wait_for(withdrawn, DEADLINE_S)).status_code == 503
        gc.collect()  # this test's client has circles
        await until(lambda: gone() is None)
        assert publisher.coming_items(one) == [0, 0]
        r.manager._record_again([one.number])
        disk.recover()
        await until(lambda: r.gateway.journal.is_healthy)
        scheduler.step(40)
        answer = await asyncio.wait_for(running, DEADLINE_S)
        assert answer.json()["choices"][0]["text"] == ids_text(oracle([1, 2], 30))
