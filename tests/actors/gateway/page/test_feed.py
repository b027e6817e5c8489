"""One collection for all viewers, and none for nobody."""

from __future__ import annotations

import asyncio
import json

import pytest
import structlog

from actors.gateway.page import feed as feeds
from actors.gateway.page.feed import LiveFeed
from actors.gateway.page.requests import RequestRows, RowsWanted
from actors.gateway.page.snapshot import Audience, Collected
from actors.gateway.requests.refusals import Refusal
from tests.support.page.collected import collected
from tests.support.waiting import DEADLINE_S

ALL = Audience()


class Source:
    """Collections that a test lets happen one by one."""

    def __init__(self) -> None:
        self.wanted: list[RowsWanted] = []
        self.may = asyncio.Semaphore(0)
        self.fails = False

    async def collect(self, wanted: RowsWanted) -> Collected:
        self.wanted.append(wanted)
        await self.may.acquire()
        if self.fails:
            raise RuntimeError("planted")
        return collected(gateway=f"gateway/{len(self.wanted)}", requests=RequestRows([], {}))


async def turn() -> None:
    """Everything that is ready runs."""
    for _ in range(10):
        await asyncio.sleep(0)


def gateway_in(snapshot: bytes | None) -> str:
    assert snapshot is not None
    return json.loads(snapshot)["gateway"]


async def test_nothing_is_collected_while_nobody_looks() -> None:
    source = Source()
    feed = LiveFeed(source.collect, every_s=0.0)
    await turn()
    assert source.wanted == []
    viewer = feed.join(ALL)
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        assert gateway_in(await viewer.next()) == "gateway/1"
    viewer.leave()
    n_before = len(source.wanted)
    source.may.release()
    await turn()
    assert len(source.wanted) == n_before
    assert len(asyncio.all_tasks()) == 1


async def test_all_viewers_share_a_collection_and_each_sees_it_once() -> None:
    source = Source()
    feed = LiveFeed(source.collect, every_s=0.0)
    viewers = [feed.join(ALL) for _ in range(5)]
    waiting = [asyncio.ensure_future(viewer.next()) for viewer in viewers]
    await turn()
    assert len(source.wanted) == 1
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        assert [gateway_in(one) for one in await asyncio.gather(*waiting)] == ["gateway/1"] * 5
    again = asyncio.ensure_future(viewers[0].next())
    await turn()
    assert not again.done()
    late = feed.join(ALL)
    assert gateway_in(await late.next()) == "gateway/1", "who comes later sees at once what there is"
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        assert gateway_in(await again) == "gateway/2"
    feed.close()


async def test_a_tenant_waits_for_a_collection_that_has_its_requests() -> None:
    source = Source()
    feed = LiveFeed(source.collect, every_s=0.0)
    admin = feed.join(ALL)
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        await admin.next()
    tenant = asyncio.ensure_future(feed.join(Audience("me")).next())
    await turn()
    assert not tenant.done()
    source.may.release()
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        await tenant
    assert source.wanted[-1] == RowsWanted(everyone=True, tenants=["me"])
    feed.close()


async def test_viewers_leave_when_the_gateway_ends() -> None:
    source = Source()
    feed = LiveFeed(source.collect)
    waiting = asyncio.ensure_future(feed.join(ALL).next())
    await turn()
    feed.close()
    async with asyncio.timeout(DEADLINE_S):
        assert await waiting is None
    with pytest.raises(Refusal, match="this gateway ends"):
        feed.join(ALL)


async def test_a_collection_that_fails_dismisses_viewers_and_the_next_one_may_come() -> None:
    source = Source()
    feed = LiveFeed(source.collect)
    source.fails = True
    source.may.release()
    async with asyncio.timeout(DEADLINE_S):
        with structlog.testing.capture_logs() as lines:
            assert await feed.join(ALL).next() is None
    assert [line["log_level"] for line in lines] == ["error"]
    source.fails = False
    source.may.release()
    viewer = feed.join(ALL)
    async with asyncio.timeout(DEADLINE_S):
        assert await viewer.next() is not None
    feed.close()


async def test_the_number_of_viewers_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MOST_VIEWERS", 1)
    feed = LiveFeed(Source().collect)
    first = feed.join(ALL)
    with pytest.raises(Refusal, match="viewers: 1 look"):
        feed.join(ALL)
    first.leave()
    feed.join(ALL).leave()
