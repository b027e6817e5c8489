"""A prompt that killed workers until it was quarantined is refused when it comes again, whatever way and id it comes with."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from actors.gateway.poison.quarantine import Quarantine, is_same_computation
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import RequestSpec
from messages.client import AsyncClient
from messages.errors import Quarantined
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ending
from messages.wire.arrays import int32s
from tests.support.gateway.fake_directory import two_replicas
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.request_examples import request_of, spec_of
from tests.support.gateway.zmq_clients import zmq_rig

POISON, GOOD = bytes(8), b"good"


def spec(*prompts: bytes, n: int = 1, **sampling: float) -> RequestSpec:
    return msgspec.structs.replace(spec_of(), prompts=list(prompts), n=n, sampling=Sampling(**sampling))  # pyright: ignore[reportArgumentType]


def with_terms(spec: RequestSpec, **terms: Any) -> RequestSpec:
    return msgspec.structs.replace(spec, terms=msgspec.structs.replace(spec.terms, **terms))


def test_what_was_quarantined_is_refused_until_its_time_is_over() -> None:
    quarantine = Quarantine(600.0)
    quarantine.add(spec(GOOD, POISON, n=2, seed=1), 3, 0, 1000.0)
    with pytest.raises(Refusal, match="another 600 s") as refused:
        quarantine.check(spec(POISON, seed=2), 1000.0)
    assert (refused.value.code, refused.value.status) == ("quarantined", 422)
    with pytest.raises(Refusal):
        quarantine.check(spec(GOOD, POISON), 1599.0)
    quarantine.check(spec(GOOD), 1000.0)
    quarantine.check(spec(POISON, temperature=0.5), 1000.0)
    quarantine.check(spec(POISON), 1600.0)
    assert len(quarantine) == 0


def test_quarantined_again_its_time_begins_anew_and_few_are_remembered() -> None:
    quarantine = Quarantine(600.0)
    quarantine.add(spec(POISON), 0, 0, 1000.0)
    for number in range(1023):
        quarantine.add(spec(b"%04d" % number), 0, 0, 1001.0)
    quarantine.add(spec(POISON), 0, 0, 1002.0)
    quarantine.add(spec(GOOD), 0, 0, 1003.0)
    assert len(quarantine) == 1024
    with pytest.raises(Refusal):
        quarantine.check(spec(POISON), 1601.5)
    quarantine.check(spec(b"0000"), 1003.0)


def test_what_one_caller_has_sent_is_not_refused_to_another() -> None:
    quarantine = Quarantine(600.0)
    mine, other = (with_terms(spec(POISON, seed=1), caller=caller) for caller in (b"one", b"other"))
    quarantine.add(mine, 0, 0, 1000.0)
    quarantine.check(other, 1000.0)
    with pytest.raises(Refusal):
        quarantine.check(mine, 1000.0)
    quarantine.add(other, 0, 0, 1000.0)
    with pytest.raises(Refusal):
        quarantine.check(other, 1000.0)


def test_a_quarantine_that_rests_on_a_sick_replica_is_forgotten() -> None:
    quarantine = Quarantine(600.0)
    quarantine.add(spec(POISON), 0, 0, 1000.0, frozenset({"scheduler/0", "scheduler/1"}))
    quarantine.add(spec(GOOD), 0, 0, 1000.0, frozenset({"scheduler/1"}))
    quarantine.clear_replica("scheduler/0")
    quarantine.check(spec(POISON), 1000.0)
    with pytest.raises(Refusal):
        quarantine.check(spec(GOOD), 1000.0)


def test_who_asks_for_no_more_than_it_gave_is_not_refused() -> None:
    quarantine = Quarantine(600.0)
    short, long = (with_terms(spec(POISON), max_tokens=n) for n in (5, 6))
    for n_given in (5, 8):  # the earlier place of death counts
        quarantine.add(spec(POISON), 0, n_given, 1000.0)
        quarantine.check(short, 1000.0)
        with pytest.raises(Refusal, match="died after 5 tokens"):
            quarantine.check(long, 1000.0)


def test_other_seeds_are_refused_only_if_the_prompt_itself_kills() -> None:
    quarantine = Quarantine(600.0)
    quarantine.add(spec(POISON, seed=1), 0, 0, 1000.0)
    quarantine.add(spec(GOOD, n=2, seed=1), 1, 3, 1000.0)  # after three sampled tokens of the second answer
    with pytest.raises(Refusal):
        quarantine.check(spec(POISON, seed=2), 1000.0)
    quarantine.check(spec(GOOD, seed=1), 1000.0)
    quarantine.check(spec(GOOD, n=2, seed=2), 1000.0)
    with pytest.raises(Refusal):
        quarantine.check(spec(GOOD, n=2, seed=1), 1000.0)
    quarantine.add(spec(GOOD, seed=1, temperature=0.0), 0, 3, 1000.0)
    with pytest.raises(Refusal):
        quarantine.check(spec(GOOD, seed=2, temperature=0.0), 1000.0)


async def test_the_same_prompt_under_another_id_is_not_computed_again() -> None:
    async with zmq_rig() as (r, _), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
        asked = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        assert (await asked).status_code == 422
        again = await http.post("/v1/completions", json=body)
        assert (again.status_code, again.json()["error"]["code"]) == (422, "quarantined")
        assert "refused for another" in again.json()["error"]["message"]
        with pytest.raises(Quarantined, match=r"^quarantined: "):
            await client.generate(int32s([1, 2, 3]), max_tokens=9, temperature=0.0)
        assert len(scheduler.submits) == 1
        scheduler.is_automatic = True
        assert (await http.post("/v1/completions", json={**body, "prompt": [1, 2]})).status_code == 200
        assert (r.gateway.manager.gate.n_reserved, r.gateway.bodies.n_bytes) == (0, 0)


def sequence_of(*prompts: bytes, index: int = 0, n_known: int = 0, **fields: Any) -> GrowingSequence:
    sampling = {name: fields.pop(name) for name in ("seed", "temperature") if name in fields}
    request = request_of(with_terms(spec(*(prompts or (POISON,)), **sampling), max_tokens=9, **fields))
    sequence = request.sequences[index]
    sequence.accept(0, [7] * n_known)
    return sequence


def test_only_what_must_meet_the_same_end_is_the_same_computation() -> None:
    quarantined = sequence_of(n_known=3, seed=1)
    same = [sequence_of(seed=1), sequence_of(seed=1, n_known=3), sequence_of(GOOD, POISON, index=1, seed=1)]
    other = [
        quarantined,
        sequence_of(seed=2),
        sequence_of(GOOD, seed=1),
        sequence_of(seed=1, temperature=0.5),
        sequence_of(seed=1, n_known=4),
        ordered(sequence_of(seed=1), max_tokens=3),
        ordered(sequence_of(seed=1), caller=b"other"),
        ordered(sequence_of(seed=1), stop=["x"]),
        ordered(sequence_of(seed=1), stop_tokens=[1, 2]),
    ]
    assert [is_same_computation(quarantined, sequence) for sequence in same] == [True] * len(same)
    assert [is_same_computation(quarantined, sequence) for sequence in other] == [False] * len(other)
    assert is_same_computation(sequence_of(seed=1, temperature=0.0), sequence_of(seed=2, temperature=0.0))
    assert is_same_computation(sequence_of(seed=1), sequence_of(seed=2)), "the prompt itself kills"
    assert not is_same_computation(sequence_of(seed=1), sequence_of(seed=1, temperature=0.5))


def ordered(sequence: GrowingSequence, **fields: Any) -> GrowingSequence:
    """The same with another order."""
    sequence.spec = with_terms(sequence.spec, **fields)
    return sequence


async def test_equal_requests_that_run_end_with_the_one_that_was_quarantined() -> None:
    async with zmq_rig() as (r, _), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
        equal = [asyncio.ensure_future(http.post("/v1/completions", json=body)) for _ in range(3)]
        other = asyncio.ensure_future(http.post("/v1/completions", json={**body, "prompt": [1, 2]}))
        await r.cluster.wait_until(lambda: len(scheduler.running) == 4)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        for answer in await asyncio.gather(*equal):
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "quarantined")
            assert "workers died 4 times" in answer.json()["error"]["message"]
        await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
        scheduler.step(4)
        assert (await other).status_code == 200
        assert [cancel.why for cancel in scheduler.cancels] == ["quarantined", "quarantined"]


async def test_the_tokens_that_come_with_its_ending_count_in_how_far_it_got() -> None:
    """Told in groups, most of them may: an equal request that ends before the place of death is innocent."""
    async with zmq_rig() as (r, _), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"prompt": [1, 2, 3], "max_tokens": 9, "temperature": 0}
        poison = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
        attempt = next(iter(scheduler.running))
        shorter = asyncio.ensure_future(http.post("/v1/completions", json={**body, "max_tokens": 4}))
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        del scheduler.running[attempt]
        ending = Ending(attempt=attempt, reason="quarantined", n_cached=0, detail="workers died")
        scheduler._send("gateway/0", [(attempt, 0, oracle([1, 2, 3], 5))], [ending])
        assert (await poison).status_code == 422
        scheduler.step(4)
        assert (await shorter).status_code == 200
        scheduler.is_automatic = True
        asked = [await http.post("/v1/completions", json={**body, "max_tokens": n}) for n in (5, 6)]
        assert [answer.status_code for answer in asked] == [200, 422], "five tokens came before its end"


async def test_an_equal_request_that_waits_for_the_directory_ends_too() -> None:
    async with zmq_rig(prefix_wait_s=60.0) as (r, _), r.http() as http:
        directory = await two_replicas(r)
        scheduler = r.scheduler("scheduler/1")
        scheduler.is_automatic = False
        body = {"prompt": list(range(40)), "max_tokens": 4, "temperature": 0}
        first = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: scheduler.running)
        directory.holder = None
        second = asyncio.ensure_future(http.post("/v1/completions", json=body))
        manager = r.gateway.manager
        await r.cluster.wait_until(lambda: manager.dispatcher.n_waiting == 1)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        answers = await asyncio.wait_for(asyncio.gather(first, second), 60.0)
        assert [answer.status_code for answer in answers] == [422, 422]


async def test_a_zeromq_client_sees_that_its_request_was_quarantined() -> None:
    async with zmq_rig() as (r, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        asked = asyncio.ensure_future(client.generate([1, 2, 3], max_tokens=4, temperature=0.0))
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        with pytest.raises(Quarantined, match="workers died 4 times"):
            await asked
