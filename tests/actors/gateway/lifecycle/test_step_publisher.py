"""When the tokens of a step are told to those who wait for them."""

from __future__ import annotations

import asyncio

from actors.gateway.lifecycle.step_rows import StepRows
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


async def test_an_exception_of_one_reader_reaches_no_other_request() -> None:
    """Both requests are in the same step, and end in the same step: each has to be told, and to be over."""
    reported = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            bodies = [{"tokens": [1, n], "max_tokens": 2, "temperature": 0, "request_id": f"r{n}"} for n in (1, 2)]
            answers = [asyncio.ensure_future(http.post("/v1/generate", json=body)) for body in bodies]
            await until(lambda: len(scheduler.running) == 2)
            first, second = (r.manager.unfinished.find(f"r{n}") for n in (1, 2))
            assert first is not None
            assert second is not None
            error, told = ValueError("a reader"), list[int]()

            def fail() -> None:
                if first.n_generated:
                    raise error

            first.watchers.append(fail)
            second.watchers.append(lambda: told.append(second.n_generated))
            for n in (1, 2):
                scheduler.step()
                await until(lambda n=n: n in told)
            assert [(await answer).status_code for answer in answers] == [200, 200]
            assert reported == [error, error]


async def test_rows_that_say_nothing_wait_for_those_before_them() -> None:
    """Else a scheduler would hear that its tokens are recorded while they are on their way into the journal."""
    async with rig(with_scheduler=False, answer_cache="exact") as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            body = {"tokens": [1, 2], "max_tokens": 3, "temperature": 0}
            kept = asyncio.ensure_future(http.post("/v1/generate", json=body))
            await until(lambda: bool(scheduler.running))
            scheduler.step(3)
            assert (await kept).status_code == 200
            publisher, published = r.manager._publisher, list[str]()
            publisher._publish = lambda rows, ack: published.append("later" if rows.endings else "nothing")
            waiting = StepRows()
            publisher._in_journal.append(waiting)  # which the journal has not confirmed
            publisher.record(StepRows(), None)
            assert published == []
            publisher._in_journal.popleft()
            await until(lambda: published == ["nothing"])


async def test_a_kept_answer_waits_for_no_other_rows() -> None:
    async with rig(answer_cache="exact") as r, r.http() as http:
        body = {"tokens": [1, 2], "max_tokens": 3, "temperature": 0}
        first = await http.post("/v1/generate", json=body)
        publisher = r.manager._publisher
        publisher._in_journal.append(StepRows())  # which the journal does not confirm
        second = await http.post("/v1/generate", json=body)
        assert second.headers["x-cache"] == "hit"
        assert second.json()["text"] == first.json()["text"]
        publisher._in_journal.popleft()
