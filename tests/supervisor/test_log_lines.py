"""What a log shows of a death, of a recovery and of an orderly end."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from structlog.testing import capture_logs

from supervisor.policy.roll import Roll
from tests.support.supervisor.supervisor_rig import playing
from tests.support.supervisor.trees import group


async def test_a_log_of_warnings_shows_a_death_and_its_recovery(open_rig) -> None:
    """A terminal shows warnings only. An orderly end is no warning, and no death."""
    with capture_logs() as lines:
        async with open_rig(group("cache_directory/0")) as rig:
            await rig.until_serving()
            os.kill(rig.record("cache_directory/0").process.pid, signal.SIGKILL)
            await rig.until(lambda: rig.record("cache_directory/0").incarnation == 2)
            await rig.until_serving()
            rig.supervisor.commands.stop()
            assert await rig.end() == 0
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["child died", "child ready again"]
    assert warnings[1]["down_s"] >= warnings[1]["took_s"] > 0
    assert [line["log_level"] for line in lines if line["event"] == "child ended"] == ["info"]


async def test_a_replacement_that_was_asked_for_is_no_warning(open_rig) -> None:
    with capture_logs() as lines:
        async with open_rig(playing("good", "gateway/0")) as rig:
            await rig.until_serving()
            rolling = rig.supervisor._rolling
            rolling._target = replace(rig.supervisor._server, groups=(playing("busy", "gateway/0"),))
            rolling.roll = Roll().begin(["gateway/0"]).replaced()
            await rolling.run()
            old = rig.record("gateway/0")
            assert old.incarnation == 2
            os.kill(old.process.pid, signal.SIGKILL)
            await rig.until(lambda: rig.record("gateway/0").incarnation == 3)
            await rig.until_serving()
    told = [(line["event"], line["log_level"]) for line in lines if line["event"] in ("child died", "child ready again")]
    assert told == [("child ready again", "info"), ("child died", "warning"), ("child ready again", "warning")]
