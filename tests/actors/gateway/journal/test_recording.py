"""Whose tokens are recorded before they are shown, or told in groups; what overtakes nothing; what is acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from messages.client import AsyncClient
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.journal_file import n_steps_in
from tests.support.gateway.journal_rig import COMPLETION, GREEDY, journal_rig
from tests.support.waiting import DEADLINE_S, until


def n_steps_recorded(gateway: object) -> int:
    return n_steps_in(Path(gateway.journal._path))  # pyright: ignore


async def test_tokens_that_nobody_can_come_back_for_are_not_recorded() -> None:
    async with journal_rig() as (r, scheduler, _), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler.is_automatic = True
        answer = await http.post("/v1/generate", json={"tokens": [1, 2], "max_tokens": 30, "temperature": 0})
        assert answer.json()["tokens"] == oracle([1, 2], 30)
        assert n_steps_recorded(r.gateway) == 0
        named = {"tokens": [1, 2], "max_tokens": 30, "temperature": 0, "request_id": "mine"}
        assert (await http.post("/v1/generate", json=named)).json()["tokens"] == oracle([1, 2], 30)
        by_http = n_steps_recorded(r.gateway)
        assert by_http >= 30
        await client.generate([1, 2], max_tokens=30, sampling=GREEDY)
        assert n_steps_recorded(r.gateway) >= by_http + 30


async def test_what_is_not_recorded_does_not_overtake_what_is() -> None:
    """A message for both kinds of clients waits for the disk; the next one, for one that is not recorded, waits behind it."""
    async with journal_rig() as (r, scheduler, disk), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        plain = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION))
        await until(lambda: len(scheduler.running) == 1)
        resumable = asyncio.ensure_future(client.generate([5, 6], max_tokens=2, sampling=GREEDY))
        await until(lambda: len(scheduler.running) == 2)
        scheduler.step(1)
        await until(lambda: scheduler.acked == 1)
        request = next(q for q in r.manager.unfinished.all if not q.spec.is_resumable)
        disk.gate.clear()
        for _ in range(3):  # both go on and the resumable one ends; then the plain one goes on alone
            scheduler.step(1)
        await until(lambda: len(request.sequences[0].ids) == 4)
        assert (request.n_generated, scheduler.acked) == (1, 1)
        disk.gate.set()
        assert (await asyncio.wait_for(resumable, DEADLINE_S)).tokens == oracle([5, 6], 2)
        await until(lambda: request.n_generated == 4)
        scheduler.step(30)
        assert (await asyncio.wait_for(plain, DEADLINE_S)).json()["usage"]["completion_tokens"] == 30


async def test_every_sixteenth_message_is_acknowledged() -> None:
    async with journal_rig(ack_messages=16) as (r, scheduler, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = asyncio.ensure_future(client.generate([5, 6], max_tokens=40, sampling=GREEDY))
        await until(lambda: bool(scheduler.running))
        for _ in range(15):
            scheduler.step(1)
        request = next(iter(r.manager.unfinished.all))
        await until(lambda: request.n_generated == 15)
        assert scheduler.acked == 0
        scheduler.step(1)
        await until(lambda: scheduler.acked == 16)
        scheduler.step(40)
        assert (await asyncio.wait_for(answer, DEADLINE_S)).tokens == oracle([5, 6], 40)


WHOLE: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 3, "temperature": 0}


@pytest.mark.parametrize(
    ("path", "body", "every"),
    [
        ("/v1/completions", WHOLE, 16),
        ("/v1/completions", WHOLE | {"stream": True}, 1),
        ("/v1/completions", WHOLE | {"stop": "x"}, 1),
        ("/v1/completions", WHOLE | {"logprobs": 0}, 1),
        ("/v1/batch", {"tokens": [[1, 2]], "max_tokens": 3, "temperature": 0}, 16),
        ("/v1/generate", {"tokens": [1, 2], "max_tokens": 3, "temperature": 0, "request_id": "mine"}, 16),
    ],
)
async def test_only_answers_that_are_read_at_their_end_are_told_in_groups(path: str, body: dict, every: int) -> None:
    async with journal_rig() as (r, scheduler, _), r.http() as http:
        scheduler.is_automatic = True
        assert (await http.post(path, json=body)).status_code == 200
        assert scheduler.submits[0].terms.group_tokens == every
