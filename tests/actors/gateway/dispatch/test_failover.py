"""Two replicas: the gang of one dies, stays away, faults always. Every stream goes on at the other replica, token for token."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx

from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.replicas_rig import TwoReplicas, two_replicas
from tests.support.gateway.whole_server import n_visible
from tests.support.scheduler.mortal_gang import Fate
from tests.support.waiting import DEADLINE_S, next_turn

N_STREAMS, N_TOKENS = 12, 60


def ask(http: httpx.AsyncClient, prompt: list[int], n: int = N_TOKENS) -> asyncio.Task[httpx.Response]:
    return asyncio.ensure_future(http.post("/v1/generate", json={"tokens": prompt, "max_tokens": n, "temperature": 0}))


async def check(asked: dict[int, asyncio.Task[httpx.Response]], n: int = N_TOKENS) -> None:
    """Every answer is complete and right. `asked`: by the first token of the prompt [i, 7]."""
    for i, answer in asked.items():
        body = (await answer).json()
        assert body["tokens"] == oracle([i, 7], n), body


async def start(both: TwoReplicas, http: httpx.AsyncClient) -> dict[int, asyncio.Task[httpx.Response]]:
    """Answers in progress at both replicas."""
    asked = {i: ask(http, [i, 7]) for i in range(1, N_STREAMS + 1)}
    await both.rig.cluster.wait_until(lambda: both.n_at(0) > 2 and both.n_at(1) > 2 and all(both.gang(r).plans for r in (0, 1)))
    return asked


def stay_away(fate: Fate) -> None:
    """The next incarnation of this gang never comes: its place is taken by nobody."""
    fate.returns.clear()


async def test_a_gang_that_is_gone_loses_its_sequences_and_gets_no_new_ones_until_it_is_back() -> None:
    async with two_replicas() as both, both.rig.http() as http:
        asked = await start(both, http)
        stay_away(both.fates[0])
        both.gang(0).die("killed")
        await both.rig.cluster.wait_until(lambda: both.n_at(0) == 0)
        assert both.condition(0) == "down"
        more = {i: ask(http, [i, 7]) for i in range(101, 111)}
        await check(asked)
        await check(more)
        assert both.n_at(0) == 0
        health = (await http.get("/v1/health")).json()
        assert (health["status"], health["parts"]["replicas"]) == ("degraded", {"scheduler/0": "down", "scheduler/1": "up"})
        both.fates[0].returns.set()
        await both.rig.cluster.wait_until(lambda: both.condition(0) == "up")
        last = {i: ask(http, [i, 7]) for i in range(201, 211)}
        await both.rig.cluster.wait_until(lambda: both.n_at(0) > 0)
        await check(last)


async def test_without_another_replica_sequences_wait_and_go_to_the_first_that_is_back() -> None:
    async with two_replicas() as both, both.rig.http() as http:
        asked = await start(both, http)
        for replica in (0, 1):
            stay_away(both.fates[replica])
            both.gang(replica).die("killed")
        await both.rig.cluster.wait_until(lambda: both.condition(0) == both.condition(1) == "down")
        more = {i: ask(http, [i, 7]) for i in range(101, 111)}
        await both.rig.cluster.wait_until(lambda: both.n_at(0) + both.n_at(1) >= len(more))
        both.fates[1].returns.set()
        await check(asked)
        await check(more)
        assert not any(both.fates[0].deaths)


async def test_a_device_that_faults_always_costs_nobody_an_answer() -> None:
    async with two_replicas() as both, both.rig.http() as http:
        both.fates[0].is_broken = True
        asked = {i: ask(http, [i, 7]) for i in range(1, N_STREAMS + 1)}
        await check(asked)
        await both.rig.cluster.wait_until(lambda: both.condition(0) == "sick")
        async with asyncio.timeout(DEADLINE_S):
            while True:  # its gang dies of its canary again and again, and is down meanwhile
                health = (await http.get("/v1/health")).json()
                if health["parts"]["replicas"]["scheduler/0"] == "sick":
                    break
                await both.rig.cluster.settle()  # a call inside of this process is answered before anybody else has a turn
        assert health["status"] == "degraded"
        assert len(both.rig.manager.poison.quarantine) == 0
        both.fates[0].is_broken = False
        await both.rig.cluster.wait_until(lambda: both.condition(0) == "up")


async def test_a_device_that_faults_on_everything_but_the_canary_blames_nobody_that_another_can_compute() -> None:
    """The canary does not show every fault. The second certain death is one of another replica, so innocents pass there."""
    async with two_replicas() as both, both.rig.http() as http:
        both.fates[0].poison = set(range(4, N_STREAMS + 1))  # the first tokens of all prompts, and none of the canary's
        asked = {i: ask(http, [i, 7]) for i in range(4, N_STREAMS + 1)}
        await check(asked)
        assert len(both.rig.manager.poison.quarantine) == 0
        assert both.fates[1].deaths == []


async def test_a_poison_is_found_although_its_gateway_is_killed_after_each_death(tmp_path: Path) -> None:
    """What a sequence is suspected of is in the journal: the next incarnation does not try it from the beginning."""
    body = {"tokens": [666, 7], "max_tokens": N_TOKENS, "temperature": 0, "request_id": "poison"}
    async with two_replicas(journal_path=str(tmp_path / "journal")) as both:
        r, fate, answer = both.rig, both.fates[0], None
        for one in both.fates:
            stay_away(one)  # a gang comes back when the test lets it
        both.gang(1).die("killed")
        await r.cluster.wait_until(lambda: both.condition(1) == "down")
        fate.poison = {666}
        for life in range(1, 12):
            async with r.http() as http:
                asked = asyncio.ensure_future(http.post("/v1/generate", json=body))
                if life > 1:
                    await _come_back(both)
                await r.cluster.wait_until(lambda life=life, asked=asked: asked.done() or _deaths_told(both) == life)
                if asked.done():
                    answer = await asked
                    break
                asked.cancel()
            recorded = asyncio.Event()
            r.gateway.journal.step(b"", recorded.set)
            await recorded.wait()
            await r.kill_gateway()
            await r.start_gateway(life + 1)
            await r.cluster.wait_until(lambda: len(r.gateway.living("scheduler")) == 2)
        assert answer is not None
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "quarantined")
        assert len(fate.deaths) == 4


async def _come_back(both: TwoReplicas) -> None:
    """Let the dead gang of replica 0 come back, once."""
    async with asyncio.timeout(DEADLINE_S):
        while "worker/0.0" not in both.rig.cluster.scripted:
            both.fates[0].returns.set()
            both.fates[0].returns.clear()
            await next_turn()


def _deaths_told(both: TwoReplicas) -> int:
    """The deaths of gangs of which the gateway suspects a sequence."""
    request = both.rig.manager.find("poison")
    suspicion = request.sequences[0].suspicion if request is not None else None
    return 0 if suspicion is None else suspicion.deaths


async def test_a_poison_is_found_although_it_moves_between_replicas() -> None:
    async with two_replicas() as both, both.rig.http() as http:
        for fate in both.fates:
            fate.poison = {666}
            fate.rng = random.Random(5)
        asked = await start(both, http)
        answer = await ask(http, [666, 7])
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "quarantined")
        await check(asked)
        assert len(both.fates[0].deaths) + len(both.fates[1].deaths) <= 6


async def test_gangs_that_are_killed_again_and_again_lose_no_token() -> None:
    rng = random.Random(6)
    async with two_replicas(failover_s=0.005) as both, both.rig.http() as http:
        asked = await start(both, http)
        wait_until = both.rig.cluster.wait_until
        while not all(answer.done() for answer in asked.values()):
            replica, wanted = rng.randrange(2), n_visible(both.rig.gateway) + 20
            await wait_until(lambda replica=replica: both.fates[replica].is_alive)
            both.gang(replica).die(rng.choice(["killed", "crashed"]))
            await wait_until(
                lambda wanted=wanted: n_visible(both.rig.gateway) >= wanted or all(answer.done() for answer in asked.values())
            )
        await check(asked)
