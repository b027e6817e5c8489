"""Who has harmed workers is known to the next incarnation of a killed gateway: prompts, callers, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from actors.gateway.journal import clock
from actors.gateway.journal.frames import Kind
from actors.gateway.journal.journal import Journal
from actors.gateway.poison.harm_budget import HarmBudget
from actors.gateway.poison.quarantine import Quarantine
from actors.gateway.poison.remembered import Remembered, RememberedCaller, RememberedPrompt
from actors.gateway.requests.refusals import Refusal
from messages.generation.replica_state import ReplicaCondition, ReplicaState
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import frames_in, opened, request_blob, spoil, unwanted, written
from tests.support.gateway.journal_writer import spec_of as numbered_order
from tests.support.gateway.request_examples import spec_of
from tests.support.waiting import until

pytestmark = pytest.mark.slow

POISON = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
PROMPT = RememberedPrompt(b"key", 100.0, 3, ("scheduler/0",))
CALLER = RememberedCaller(b"caller", 5.0, (("scheduler/0",),) * 4)


async def ask(r: Rig, scheduler: FakeScheduler, key: str, prompt: list[int]) -> tuple[int, str]:
    """The status and the code of an answer; a request that comes to the scheduler kills its workers."""
    async with r.http() as http:
        body = POISON | {"prompt": prompt}
        asked = asyncio.ensure_future(http.post("/v1/completions", json=body, headers={"Authorization": key}))
        await until(lambda: bool(scheduler.running) or asked.done())
        if scheduler.running:
            scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        answer = await asked
    return answer.status_code, answer.json()["error"]["code"]


async def die_and_begin_again(r: Rig, incarnation: int) -> None:
    await written(r.gateway.journal)
    await r.kill_gateway()
    await r.start_gateway(incarnation)


async def test_a_killed_gateway_forgets_no_quarantine(tmp_path: Path) -> None:
    async with rig(with_scheduler=False, caller_header="authorization", journal_path=str(tmp_path / "journal-0")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        for number in range(1, 4):
            assert await ask(r, scheduler, "bad", [number]) == (422, "quarantined")
        n_harmed = len(scheduler.submits)
        await die_and_begin_again(r, 2)
        for number in range(1, 4):
            assert await ask(r, scheduler, "bad", [number]) == (422, "quarantined")
        assert len(scheduler.submits) == n_harmed, "nothing was computed again"
        assert await ask(r, scheduler, "bad", [4]) == (422, "quarantined"), "its fourth harm, in the second life"
        assert await ask(r, scheduler, "bad", [9]) == (429, "caller_harms_workers")
        await die_and_begin_again(r, 3)
        assert await ask(r, scheduler, "bad", [9]) == (429, "caller_harms_workers")
        assert len(scheduler.submits) == n_harmed + 1


async def test_a_cleared_replica_is_not_forgotten_either(tmp_path: Path) -> None:
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal-0")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        await ask(r, scheduler, "", [1])
        r.manager.dispatcher.failover.on_state("scheduler/0", ReplicaState(condition=ReplicaCondition.SICK, since_s=0.0))
        await die_and_begin_again(r, 2)
        n_before = len(scheduler.submits)
        await ask(r, scheduler, "", [1])
        assert len(scheduler.submits) == n_before + 1


async def test_the_time_between_two_incarnations_counts_and_a_quarantine_moves_with_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal-1")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        await ask(r, scheduler, "", [1])
        await written(r.gateway.journal)
        since_boot_s = clock.since_boot_s
        monkeypatch.setattr(clock, "since_boot_s", lambda: since_boot_s() + 500.0)
        r.settings = msgspec.structs.replace(r.settings, journal_path=str(tmp_path / "journal-0"), gateways=1)
        await die_and_begin_again(r, 2)
        await until(lambda: not (tmp_path / "journal-1").exists())
        assert 90.0 < r.manager.poison.quarantine.remembered(r.gateway.now_s())[0].left_s <= 100.0
        await die_and_begin_again(r, 3)
        assert await ask(r, scheduler, "", [1]) == (422, "quarantined")
        assert len(scheduler.submits) == 1
        monkeypatch.setattr(clock, "since_boot_s", lambda: since_boot_s() + 700.0)
        await die_and_begin_again(r, 4)
        assert not r.manager.poison.quarantine.remembered(r.gateway.now_s())


async def test_what_is_remembered_moves_on_when_its_file_is_to_go(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"), segment_bytes=4096)
    journal.open()
    journal.start()
    journal.remembered = lambda: Remembered([PROMPT], [CALLER])
    journal.remember()
    for number in range(1, 100):
        journal.admission(number, request_blob(numbered_order(number)), lambda: None, unwanted)
        journal.delete(number)
        await written(journal)
    await journal.close()
    assert sum(file.stat().st_size for file in (tmp_path / "journal").iterdir()) < 8 * 4096
    again = Journal(str(tmp_path / "journal"))
    assert again.open() == []
    (found,) = again.found
    await again.close()
    assert [one.key for one in found.prompts] == [b"key"]
    assert found.callers[0].harms == CALLER.harms
    assert found.callers[0].quiet_s >= CALLER.quiet_s


async def test_damage_costs_the_quarantines_and_nothing_else(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.admission(1, request_blob(numbered_order(1)), lambda: None, unwanted)
    journal.remembered = lambda: Remembered([PROMPT], [CALLER])
    journal.remember()
    await journal.close()
    assert [frame.kind for frame in frames_in(tmp_path / "journal")] == [Kind.HEADER, Kind.REQUEST, Kind.REMEMBERED]
    spoil(tmp_path / "journal", nth=2)
    again = Journal(str(tmp_path / "journal"))
    (recovered,) = again.open()
    assert (recovered.number, again.found) == (1, [Remembered()])
    await again.close()


def test_what_is_restored_is_bounded_and_what_is_known_already_stays() -> None:
    quarantine, budget = Quarantine(600.0), HarmBudget(600.0)
    quarantine.restore([RememberedPrompt(b"%d" % n, 1e9 if n else -1.0, 0, ()) for n in range(2000)], 1000.0)
    budget.restore([RememberedCaller(b"%d" % n, n / 10, (("scheduler/0",),) * 99) for n in range(9000)], 1000.0)
    prompts, callers = quarantine.remembered(1000.0), budget.remembered(1000.0)
    assert (len(prompts), len(callers)) == (1024, 4096)
    assert {one.left_s for one in prompts} == {600.0}
    assert (callers[-1].caller, callers[-1].quiet_s, len(callers[-1].harms)) == (b"0", 0.0, 32)
    quarantine.restore([RememberedPrompt(prompts[-1].key, 5.0, 7, ())], 1000.0)
    assert quarantine.remembered(1000.0)[-1].n_given == 0


def test_the_harms_of_one_caller_are_bounded_and_its_pause_stays_the_longest() -> None:
    budget = HarmBudget(600.0)
    for n in range(1000):
        budget.charge(b"caller", frozenset({"scheduler/0"}), 1000.0 + n)
    (one,) = budget.remembered(2000.0)
    assert len(one.harms) == 32
    with pytest.raises(Refusal, match="another 599 s"):
        budget.check(b"caller", 2000.0)


def test_restored_entries_expire_in_the_order_of_their_time() -> None:
    quarantine = Quarantine(600.0)
    quarantine.add(spec_of(), 0, 0, 1000.0)
    quarantine.restore([PROMPT], 1000.0)
    assert [round(one.left_s) for one in quarantine.remembered(1000.0)] == [100, 600]
