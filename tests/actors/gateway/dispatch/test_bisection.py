"""A request that faults the scheduler itself is found by halves; whoever was beside it ends normally."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.bisection import Bisection
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.text.detokenizer import NumberText
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.depth import examples
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import rig

POISON = 666


def sequences(n: int) -> list[GrowingSequence]:
    prompts = [np.array([i], "<i4").tobytes() for i in range(n)]
    terms = Terms(max_tokens=4)
    spec = RequestSpec(request="r", api="generate", created_s=0.0, prompts=prompts, sampling=Sampling(), terms=terms)
    return Request(1, spec, lambda prompt: NumberText(), 0.0).sequences


@given(st.integers(1, 64), st.data())
@examples(40)
def test_the_culprit_is_blamed_after_few_deaths_and_nobody_else(n: int, data: st.DataObject) -> None:
    everybody = sequences(n)
    culprits = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=2))
    bisection, n_deaths, blamed = Bisection(), 0, list[int]()
    while len(blamed) < len(culprits):
        living = [s for s in everybody if s.ended is None]
        together = [s for s in living if bisection.is_isolated(s)] if bisection.is_active else living
        if not any(s.index in culprits for s in together):
            for sequence in together:
                sequence.n_losses = 0  # a new token has come
            bisection.advance()
            continue
        n_deaths += 1
        for sequence in together:
            sequence.n_losses += 1
        found = bisection.scheduler_died(together)
        if found is not None:
            blamed.append(found[0].index)
            found[0].end(Ended(reason="quarantined"))
    assert set(blamed) == culprits
    assert n_deaths <= len(culprits) * (4 + n.bit_length())


def test_a_death_with_somebody_beside_it_blames_nobody() -> None:
    one, other = sequences(2)
    bisection = Bisection()
    for _ in range(2):
        one.n_losses += 1
        assert bisection.scheduler_died([one]) is None
    for _ in range(10):
        one.n_losses += 1
        other.n_losses = 1
        assert bisection.scheduler_died([one, other]) is None


def test_one_that_was_cancelled_ends_the_search() -> None:
    (one,) = sequences(1)
    bisection = Bisection()
    for _ in range(2):
        one.n_losses += 1
        bisection.scheduler_died([one])
    assert bisection.is_active
    one.end(Ended(reason="cancelled"))
    assert bisection.advance()
    assert not bisection.is_active


def ask(http: httpx.AsyncClient, tokens: list[int]) -> asyncio.Task[httpx.Response]:
    return asyncio.ensure_future(http.post("/v1/generate", json={"tokens": tokens, "max_tokens": 8, "temperature": 0}))


@pytest.mark.parametrize("n_innocents", [1, 6])
async def test_a_request_that_faults_the_scheduler_ends_alone(n_innocents: int) -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        innocents = {i: ask(http, [5, i]) for i in range(n_innocents)}
        await r.cluster.wait_until(lambda: len(scheduler.running) == n_innocents)
        poison = ask(http, [POISON])
        await r.cluster.wait_until(lambda: len(scheduler.running) == n_innocents + 1)
        life = 1
        while not poison.done():
            await r.cluster.settle(50)
            if any(run.submit.tokens[0] == POISON for run in scheduler.running.values()):
                life += 1
                await r.cluster.kill("scheduler/0", "faulted")  # before anybody has got a token
                await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
                scheduler = await r.add_scheduler(incarnation=life, is_automatic=False)
            else:
                scheduler.step(100)
        answer = await poison
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "quarantined")
        assert "while they had this sequence alone" in answer.json()["error"]["message"]
        assert life <= 8
        scheduler.is_automatic = True
        while not all(answer.done() for answer in innocents.values()):
            scheduler.step(100)
            await r.cluster.settle(50)
        for i, innocent in innocents.items():
            assert (await innocent).json()["tokens"] == oracle([5, i], 8)
        again = await ask(http, [POISON])
        assert (again.status_code, again.json()["error"]["code"]) == (422, "quarantined")


async def test_a_late_newcomer_waits_for_the_search_and_is_answered() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        poison = ask(http, [POISON])
        for life in (2, 3):
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            await r.cluster.settle(20)
            await r.cluster.kill("scheduler/0", "faulted")
            await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
            scheduler = await r.add_scheduler(incarnation=life, is_automatic=False)
        await r.cluster.wait_until(lambda: scheduler.running)
        newcomer = ask(http, [5])
        await r.cluster.wait_until(lambda: r.manager.dispatcher.n_waiting == 1)
        assert [run.submit.tokens.tolist() for run in scheduler.running.values()] == [[POISON]]
        scheduler.step(1)  # it gets on: it was no poison after all
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        scheduler.step(100)
        assert (await newcomer).json()["tokens"] == oracle([5], 8)
        assert (await poison).json()["tokens"] == oracle([POISON], 8)
