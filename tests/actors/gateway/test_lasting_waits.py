"""One timer tells of all waits that have lasted a second."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from actors.gateway.lasting_waits import LastingWaits
from actors.gateway.lifecycle.unfinished import UnfinishedRequests
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.request import Request
from messages.generation.terms import Terms
from tests.support.dispatch.dispatcher_bench import PeersPost
from tests.support.gateway.asgi_exchange import MODEL, request_of, show


def passes(post: PeersPost, seconds: float) -> None:
    """Let time pass; timers that are due run."""
    end_s = post.clock_s + seconds
    while due := [timer for timer in post.timers if not timer.is_cancelled and timer.delay_s <= end_s - post.clock_s]:
        first = min(due, key=lambda timer: timer.delay_s)
        post.timers.remove(first)
        for other in post.timers:
            other.delay_s -= first.delay_s
        post.clock_s += first.delay_s
        first.run()
    for timer in post.timers:
        timer.delay_s -= end_s - post.clock_s
    post.clock_s = end_s


@pytest.fixture
def post() -> PeersPost:
    return PeersPost()


@pytest.fixture
def lasting(post: PeersPost) -> LastingWaits:
    return LastingWaits(post.later, post.now_s)


def test_what_lasts_is_told_after_a_second_and_what_has_ended_is_not(post: PeersPost, lasting: LastingWaits) -> None:
    told: list[tuple[str, float]] = []
    for at, name in enumerate(("a", "b", "c", "d")):
        lasting.add(name, lambda name=name: told.append((name, round(post.clock_s, 2))))
        passes(post, 0.25 if at < 3 else 0.0)
    assert len(post.timers) == 1, "one timer for all"
    lasting.remove("b")
    lasting.remove("nobody")
    passes(post, 5.0)
    assert told == [("a", 1.0), ("c", 1.5), ("d", 1.75)]
    assert not post.timers
    lasting.add("e", lambda: told.append(("e", round(post.clock_s, 2))))
    passes(post, 1.0)
    assert told[-1] == ("e", 6.75)


def test_many_ends_close_to_each_other_are_told_together(post: PeersPost, lasting: LastingWaits) -> None:
    told: list[float] = []
    for number in range(1000):
        lasting.add(number, lambda: told.append(post.clock_s))
        passes(post, 1e-5)
    n_made, later = 0, post.later

    def count(delay_s: float, callback: object) -> object:
        nonlocal n_made
        n_made += 1
        return later(delay_s, callback)  # pyright: ignore[reportArgumentType]

    lasting._later = count  # pyright: ignore[reportAttributeAccessIssue]
    passes(post, 2.0)
    assert len(told) == 1000
    assert n_made <= 3


def test_a_call_that_fails_or_ends_others_keeps_nobody_waiting(post: PeersPost, lasting: LastingWaits) -> None:
    told: list[str] = []

    def fails() -> None:
        lasting.remove("ended by it")
        raise ValueError("it fails")

    lasting.add("fails", fails)
    lasting.add("ended by it", lambda: told.append("ended by it"))
    lasting.add("other", lambda: told.append("other"))
    with pytest.raises(ValueError, match="it fails"):
        passes(post, 1.5)
    passes(post, 0.1)
    assert told == ["other"]


def test_after_the_stop_nothing_is_told(post: PeersPost, lasting: LastingWaits) -> None:
    told: list[str] = []
    lasting.add("a", lambda: told.append("a"))
    lasting.stop()
    passes(post, 5.0)
    assert not told


@pytest.mark.parametrize("deadline_s", [0.5, 1.0, 1.005, 3.0, 0.0])
def test_a_request_ends_at_its_deadline(post: PeersPost, lasting: LastingWaits, deadline_s: float) -> None:
    late: list[float] = []
    unfinished = UnfinishedRequests(post, lasting, 600.0, lambda request: late.append(post.clock_s))
    spec = msgspec.structs.replace(request_of().spec, terms=Terms(max_tokens=100, deadline_s=deadline_s))
    post.clock_s = 5.0
    requests = [Request(number, spec, MODEL.detokenizer, 5.0) for number in (1, 2)]
    for request in requests:
        unfinished.add(request)
    passes(post, 0.3)
    unfinished.remove(requests[1])
    passes(post, 700.0)
    assert late == [pytest.approx(5.0 + (deadline_s or 600.0), abs=0.02)]
    unfinished.remove(requests[0])


async def test_a_short_wait_of_a_reader_makes_no_timer(
    post: PeersPost, lasting: LastingWaits, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, loop = request_of(), asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_at", lambda *arguments: pytest.fail("a timer"))
    reader = Reader(request, lasting=lasting)
    waiting = asyncio.ensure_future(reader.wait_settled(1.0))
    await asyncio.sleep(0)
    assert len(post.timers) == 1
    show(request, 1)
    request.wake()
    await waiting
    assert await reader.wait_update(15.0)
    reader.close()
    passes(post, 5.0)
    assert not post.timers
