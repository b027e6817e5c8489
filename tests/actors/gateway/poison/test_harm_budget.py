"""A caller who brings a new poison each time waits longer and longer; nobody else does."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway.poison.harm_budget import HarmBudget
from actors.gateway.requests.refusals import Refusal
from tests.support.gateway.gateway_rig import rig

ONE, OTHER, HERE = b"one", b"other", frozenset({"scheduler/0"})


def pause_s(budget: HarmBudget, caller: bytes, now_s: float) -> float:
    """For how long this caller is refused; 0: it is not."""
    try:
        budget.check(caller, now_s)
    except Refusal as refusal:
        return refusal.retry_after_s
    return 0.0


def test_three_harms_are_free_and_each_further_one_doubles_the_pause() -> None:
    budget, pauses = HarmBudget(600.0), []
    for n in range(12):
        budget.charge(ONE, HERE, 1000.0 + n)
        pauses.append(pause_s(budget, ONE, 1000.0 + n))
        assert pause_s(budget, OTHER, 1000.0 + n) == 0.0
    assert pauses == [0, 0, 0, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert pause_s(budget, ONE, 1011.0 + 599.0) == 1.0
    assert pause_s(budget, ONE, 1011.0 + 600.0) == 0.0


def test_who_does_no_harm_for_long_enough_begins_anew() -> None:
    budget = HarmBudget(600.0)
    for now_s in (1.0, 2.0, 3.0, 700.0):
        budget.charge(ONE, HERE, now_s)
    assert pause_s(budget, ONE, 700.0) == 0.0


def test_deaths_at_a_sick_replica_are_nobodys_fault() -> None:
    budget = HarmBudget(600.0)
    for _ in range(4):
        budget.charge(ONE, HERE | {"scheduler/1"}, 1.0)
    budget.clear_replica("scheduler/2")
    assert pause_s(budget, ONE, 1.0) == 10.0
    budget.clear_replica("scheduler/1")
    assert pause_s(budget, ONE, 1.0) == 0.0


def test_a_bounded_number_of_callers_is_remembered() -> None:
    budget = HarmBudget(600.0)
    for _ in range(4):
        budget.charge(ONE, HERE, 1.0)
    for number in range(4096):
        budget.charge(b"%04d" % number, HERE, 1.0)
    assert pause_s(budget, ONE, 1.0) == 0.0


async def test_a_caller_with_a_new_poison_each_time_is_refused_for_a_while_and_others_are_served() -> None:
    async with rig(with_scheduler=False, caller_header="authorization") as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)

        async def ask(key: str, prompt: list[int]) -> tuple[int, str, str]:
            body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
            asked = asyncio.ensure_future(http.post("/v1/completions", json=body, headers={"Authorization": key}))
            await r.cluster.wait_until(lambda: scheduler.running or asked.done())
            if scheduler.running and key == "bad":
                scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
            elif scheduler.running:
                scheduler.step(4)
            answer = await asked
            code = answer.json().get("error", {}).get("code", "")
            return answer.status_code, code, answer.headers.get("retry-after", "")

        for poison in range(1, 5):
            assert await ask("bad", [poison]) == (422, "quarantined", "")
        for prompt in ([5], [1]):
            status, code, retry_after = await ask("bad", prompt)
            assert (status, code) == (429, "caller_harms_workers")
            assert 1 <= int(retry_after) <= 10
        assert await ask("good", [5]) == (200, "", "")
        assert await ask("good", [1]) == (200, "", ""), "the poison of one caller, which has not harmed anybody for this one"
        assert (r.manager.gate.n_reserved, r.gateway.bodies.n_bytes) == (0, 0)


@pytest.mark.parametrize("caller", ["bad", "good"])
async def test_equal_requests_of_another_caller_go_on(caller: str) -> None:
    async with rig(with_scheduler=False, caller_header="authorization") as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
        asked = []
        for key in ("bad", caller):
            asked.append(asyncio.ensure_future(http.post("/v1/completions", json=body, headers={"Authorization": key})))
            await r.cluster.wait_until(lambda: len(scheduler.running) == len(asked))
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        assert (await asked[0]).status_code == 422
        scheduler.step(4)
        assert (await asked[1]).status_code == (422 if caller == "bad" else 200)
