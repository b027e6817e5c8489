"""A request belongs to the model for which it was accepted, through any number of starts with others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.gateway.models.model_identity import ModelIdentity
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import written
from tests.support.waiting import DEADLINE_S, until

RUNNING: dict[str, Any] = {"tokens": [1, 2], "max_tokens": 8, "temperature": 0, "request_id": "running"}
STREAMED: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 8, "temperature": 0, "stream": True, "logprobs": 1}
DONE: dict[str, Any] = {"prompt": [3], "max_tokens": 2, "temperature": 0, "stream": True}


async def leave_running(r: Rig, scheduler: FakeScheduler, *asked: asyncio.Future[Any]) -> None:
    """Kill the gateway after three tokens of these requests."""
    await until(lambda: len(scheduler.running) == len(asked))
    scheduler.step(3)
    await until(lambda: scheduler.acked == scheduler.sent)
    await written(r.gateway.journal)
    await r.kill_gateway()
    for one in asked:
        one.cancel()
    scheduler.running.clear()


async def test_an_answer_has_no_text_of_another_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are numbers of other words there. A client that comes back is told how it has ended, however late it comes."""
    other = ModelIdentity(b"other weights", b"other tokenizer")
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal-0")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            asked = [
                asyncio.ensure_future(http.post("/v1/completions", json=body, headers={"Idempotency-Key": key}))
                for body, key in ((STREAMED, "running"), (DONE, "done"))
            ]
            await leave_running(r, scheduler, *asked)
        monkeypatch.setattr("actors.gateway.models.model_identity.known_identity", lambda folder: other)
        for incarnation in (2, 3):
            await r.start_gateway(incarnation)
            async with r.http() as http:
                for key in ("running", "done"):
                    for after in ({}, {"Last-Event-ID": "1"}):
                        answer = await http.get(f"/v1/streams/{key}", headers=after)
                        assert "model_changed" in answer.text, (incarnation, key, after)
                        assert not any(f"{token} " in answer.text for token in (*oracle([1, 2], 3), *oracle([3], 2)))
            r.manager._record_again([1, 2])
            await written(r.gateway.journal)
            await r.kill_gateway()
        await r.start_gateway(4)


async def test_an_answer_that_nobody_promised_to_be_exact_is_never_held_to_that(tmp_path: Path) -> None:
    """It was accepted before a start with that promise, and goes on after one without it."""
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal-0"), numerics="float32 tp1") as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            await leave_running(r, scheduler, asyncio.ensure_future(http.post("/v1/generate", json=RUNNING)))
        for incarnation, is_exact in ((2, True), (3, False)):
            r.settings = msgspec.structs.replace(r.settings, deterministic=is_exact)
            await r.start_gateway(incarnation)
            if is_exact:
                r.manager._record_again([request.number for request in r.manager.unfinished.all])
                await written(r.gateway.journal)
                await r.kill_gateway()
                scheduler.running.clear()
        async with r.http() as http:
            running = asyncio.ensure_future(http.post("/v1/generate", json=RUNNING))
            await until(lambda: bool(scheduler.running) or running.done())
            scheduler.step(40)
            answer = await asyncio.wait_for(running, DEADLINE_S)
        assert answer.json()["tokens"] == oracle([1, 2], 8)
