"""The supervisor with a standby gang: started last, unknown to the others, promoted after a proven death."""

from __future__ import annotations

import os
import signal

from messages.lifecycle.tree import TreeState
from supervisor.policy.child_spec import Strategy
from tests.support.supervisor.trees import group

GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True)


async def test_a_standby_gang_is_unknown_to_the_others_until_it_is_promoted(open_rig) -> None:
    standby = group("worker/0.0b", "worker/0.1b", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True, standby_of=GANG.title)
    async with open_rig(GANG, standby, group("scheduler/0")) as rig:
        await rig.until_serving()
        await rig.until_written("scheduler/0", "up worker/0.1 1")
        await rig.until(lambda: all(rig.record(name).is_serving for name in ("worker/0.0b", "worker/0.1b")))
        standby_dir = rig.record("worker/0.0b").gang_dir
        assert standby_dir != rig.record("worker/0.0").gang_dir
        assert not any("0b" in line or "1b" in line for line in rig.diary("scheduler/0"))
        os.kill(rig.record("worker/0.1").process.pid, signal.SIGKILL)
        await rig.until_written("scheduler/0", "up worker/0.0b 1")
        await rig.until_written("scheduler/0", "up worker/0.1b 1")
        await rig.until(lambda: rig.record("worker/0.0").incarnation == 2)
        await rig.until_serving()
        assert os.access(standby_dir, os.F_OK)
        assert rig.record("worker/0.0b").gang_dir == standby_dir
        lines = rig.diary("scheduler/0")
        assert lines.index("down worker/0.0 1") < lines.index("up worker/0.0b 1")
        assert lines.index("down worker/0.1 1") < lines.index("up worker/0.0b 1")
        assert "up worker/0.0 2" not in lines


async def test_a_standby_that_starts_again_does_not_keep_the_tree_from_serving(open_rig) -> None:
    standby = group("worker/0.0b", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True, standby_of="worker/0.0")
    async with open_rig(group("worker/0.0"), standby, group("scheduler/0")) as rig:
        await rig.until_serving()
        await rig.until(lambda: rig.record("worker/0.0b").is_serving)
        for _ in range(3):
            incarnation = rig.record("worker/0.0b").incarnation
            os.kill(rig.record("worker/0.0b").process.pid, signal.SIGKILL)
            await rig.until(lambda n=incarnation: rig.record("worker/0.0b").incarnation > n)
            assert rig.supervisor.state is TreeState.SERVING
        assert rig.record("worker/0.0").incarnation == 1
