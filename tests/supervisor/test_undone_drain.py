"""A drain that is taken back."""

from __future__ import annotations

import structlog.testing

from messages.lifecycle.lifecycle import Progress
from tests.support.supervisor.supervisor_rig import DEADLINE_S, playing
from tests.support.supervisor.trees import group


async def test_a_drain_that_is_taken_back_replaces_the_gateways_that_drain(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), playing("busy", "gateway/0"), group("gateway/1")) as rig:
        await rig.until_serving()
        rig.supervisor.commands.drain(DEADLINE_S, then_stop=False)
        await rig.until(lambda: rig.record("gateway/1").state == "drained" and rig.record("gateway/0").state == "draining")
        with structlog.testing.capture_logs() as logs:
            assert rig.supervisor.commands.serve() == ""
            await rig.until(lambda: all(rig.record(name).incarnation == 2 for name in ("gateway/0", "gateway/1")))
        assert {line["event"] for line in logs if line.get("incarnation") == 1} == {"child ended"}
        await rig.until_serving()
        assert rig.record("cache_directory/0").incarnation == 1
        assert rig.supervisor.commands.serve() == "", "a server that serves goes on"
        rig.supervisor.commands.drain(DEADLINE_S, then_stop=True)
        assert rig.supervisor.commands.serve().endswith("got one that is stopping")


async def test_a_gateway_with_requests_that_are_not_written_is_not_replaced(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), playing("busy", "gateway/0"), group("gateway/1")) as rig:
        await rig.until_serving()
        rig.supervisor.commands.drain(DEADLINE_S, then_stop=False)
        await rig.until(lambda: rig.record("gateway/1").state == "drained" and rig.record("gateway/0").state == "draining")
        for name in ("gateway/0", "gateway/1"):
            rig.record(name).last = Progress(steps=0, busy_s=0.0, statistics={"journal_refuses": 1.0}, metrics=[])
        assert rig.supervisor.commands.serve().endswith("got a disk that refuses writes of gateway/0")
        rig.record("gateway/0").last = None
        assert rig.supervisor.commands.serve() == "", "the disk has room again, and what has no request loses nothing"
        await rig.until(lambda: all(rig.record(name).incarnation == 2 for name in ("gateway/0", "gateway/1")))
