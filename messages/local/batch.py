"""Many calls at once on one client: at most so many at a time, in any order, their answers in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from messages.errors import ClientError, Overloaded, Unavailable

_Result = TypeVar("_Result")

MOST_REFUSALS = 100  # of one call, in a row: each waits as long as the server asks for
_LONGEST_WAIT_S = 30.0


async def answers_of(
    calls: Sequence[Callable[[], Awaitable[_Result]]], most_at_once: int, on_answer: Callable[[_Result], None]
) -> list[_Result]:
    """What all `calls` return. A call that the server refuses for now is made again. `on_answer`: called with each result as it
    comes.

    Raises: the first error of a call, whose note says which one it was; then the others are cancelled.
    """
    results: dict[int, _Result] = {}
    left = iter(enumerate(calls))

    async def work() -> None:
        for index, call in left:  # all workers share the iterator
            try:
                results[index] = await _insist(call)
            except ClientError as error:
                error.add_note(f"at index {index} of {len(calls)}")
                raise
            on_answer(results[index])

    tasks = [asyncio.ensure_future(work()) for _ in range(min(most_at_once, len(calls)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[index] for index in range(len(calls))]


async def _insist(call: Callable[[], Awaitable[_Result]]) -> _Result:
    """What the call returns. Refusals for the moment are waited out, `MOST_REFUSALS` of them. Raises: ClientError."""
    for _ in range(MOST_REFUSALS):
        try:
            return await call()
        except Overloaded as error:
            await asyncio.sleep(min(max(error.retry_after_s, 0.05), _LONGEST_WAIT_S))
    return await call()


async def while_served(answers: Coroutine[Any, Any, _Result], ended: Coroutine[Any, Any, None]) -> _Result:
    """What `answers` returns. `ended` returns when nobody can give them any more.

    Raises: Unavailable then, and what `answers` raises.
    """
    work, watch = asyncio.ensure_future(answers), asyncio.ensure_future(ended)
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Unavailable("the private server has ended")
        return work.result()
    finally:
        work.cancel()
        watch.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)
