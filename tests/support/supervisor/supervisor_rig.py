"""A supervisor over real processes of the stub actor, for the tests of this folder. Every wait has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from supervisor.children.child_record import ChildRecord
from supervisor.policy.child_spec import Group
from supervisor.supervisor import Supervisor
from tests.support.supervisor.trees import group

DEADLINE_S = 120.0


def playing(behaviour: str, *names: str, **more: object) -> Group:
    """A group of stub actors that all show this behaviour; see `stub_actor`."""
    return group(*names, settings=b'{"behaviour":"%s"}' % behaviour.encode(), **more)  # type: ignore[arg-type]


class SupervisorRig:
    """A running supervisor and the task that runs it."""

    def __init__(self, supervisor: Supervisor, run_dir: Path) -> None:
        self.supervisor, self.run_dir = supervisor, run_dir
        self.task = asyncio.ensure_future(supervisor.run())

    def record(self, name: str) -> ChildRecord:
        """The supervisor's record of a child."""
        return self.supervisor.children.record_by_name[name]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition over the records; fails at the deadline."""
        assert await self.supervisor.children.wait_until(condition, DEADLINE_S), self.supervisor.report(False)

    async def until_serving(self) -> None:
        """Wait until all children are ready."""
        await self.until(lambda: self.supervisor.state == "serving")

    async def end(self) -> int:
        """Wait for the end of the supervisor; returns its exit status."""
        return await asyncio.wait_for(asyncio.shield(self.task), DEADLINE_S)

    def diary(self, name: str) -> list[str]:
        """The lines that all incarnations of a child have written."""
        path = self.run_dir / f"diary-{name.replace('/', '-')}"
        return path.read_text().splitlines() if path.exists() else []

    async def until_written(self, name: str, line: str) -> None:
        """Wait for a line in a diary; fails at the deadline."""
        async with asyncio.timeout(DEADLINE_S):
            while line not in self.diary(name):
                await asyncio.sleep(0.01)
