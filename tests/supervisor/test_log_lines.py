"""What a log shows of a death, of a recovery and of an orderly end."""

from __future__ import annotations

import os
import signal

from structlog.testing import capture_logs

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
