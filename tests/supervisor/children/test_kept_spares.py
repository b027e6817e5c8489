"""A supervisor that adopts a spare knows whether it waits for its spawn spec or still imports."""

from __future__ import annotations

import os

from supervisor.children.kept_spares import AdoptedSpare, KeptSpares
from supervisor.children.process import LocalProcess
from supervisor.children.spawner import ignore_exit
from supervisor.directories.register import ChildFacts, Registered, start_ticks_of
from supervisor.parent.link import Exits, ParentLink
from tests.support.waiting import until


async def test_what_a_spare_says_reaches_every_supervisor_that_follows() -> None:
    read_end, write_end = os.pipe()
    says_when_told = f"read -r go </proc/self/fd/{read_end}; printf w >&0; exec sleep 600"
    process = LocalProcess.spawn(["/bin/sh", "-c", says_when_told], ignore_exit, pass_fds=(read_end,))
    kept, ticks = KeptSpares(ParentLink()), start_ticks_of(process.pid)
    assert ticks is not None
    kept.keep("gateway/0", process, {})

    def next_supervisor() -> AdoptedSpare:
        spare = kept.of(Registered(ChildFacts("gateway/0", 0), process.pid, ticks), Exits(), ignore_exit)
        assert spare is not None
        return spare

    try:
        assert not process.is_warm
        assert not next_supervisor().is_warm
        os.write(write_end, b"go\n")
        await until(lambda: process.is_warm)
        assert next_supervisor().is_warm
        assert next_supervisor().is_warm, "the one before has left it there"
    finally:
        process.kill()
        os.close(read_end)
        os.close(write_end)
