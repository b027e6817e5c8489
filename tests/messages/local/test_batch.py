"""Many calls at once: order, the bound on those under way, refusals, and the first error."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from messages.errors import InvalidRequest, Overloaded, Unavailable
from messages.local.batch import MOST_REFUSALS, answers_of, while_served


async def test_answers_come_in_the_order_of_the_calls_and_so_many_run_at_a_time() -> None:
    n_now, n_most, seen = 0, 0, list[int]()

    async def call(number: int) -> int:
        nonlocal n_now, n_most
        n_now += 1
        n_most = max(n_most, n_now)
        for _ in range(20 - number):
            await asyncio.sleep(0)
        n_now -= 1
        return number

    assert await answers_of([partial(call, number) for number in range(20)], 4, seen.append) == list(range(20))
    assert n_most == 4
    assert sorted(seen) == list(range(20))
    assert await answers_of([], 4, seen.append) == []


async def test_a_refused_call_is_made_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(wait_s: float) -> None:
        waits.append(wait_s)

    n_calls = 0

    async def refused() -> int:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            return 7
        raise Overloaded("full", 2.0 if n_calls == 1 else 1e9)

    async def always() -> int:
        raise Overloaded("full", 0.0)

    monkeypatch.setattr(asyncio, "sleep", note)
    assert await answers_of([refused], 1, lambda _: None) == [7]
    assert waits == [2.0, 30.0], "as long as the server says, within reason"
    waits.clear()
    with pytest.raises(Overloaded):
        await answers_of([always], 1, lambda _: None)
    assert len(waits) == MOST_REFUSALS


async def test_the_first_error_names_its_call_and_cancels_the_others() -> None:
    was_cancelled = False

    async def endless() -> int:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise
        return 0

    async def wrong() -> int:
        raise InvalidRequest("expected less", "prompt")

    with pytest.raises(InvalidRequest, match="prompt: expected less") as caught:
        await answers_of([endless, wrong], 2, lambda _: None)
    assert caught.value.__notes__ == ["at index 1 of 2"]
    assert was_cancelled


async def test_calls_end_with_their_server() -> None:
    async def after(event: asyncio.Event) -> None:
        await event.wait()

    ready, never = asyncio.Event(), asyncio.Event()
    ready.set()
    assert await while_served(asyncio.sleep(0, "answer"), after(never)) == "answer"
    with pytest.raises(Unavailable, match="the private server has ended"):
        await while_served(after(never), after(ready))
