"""One run of the fuzz of internal inboxes against a real server with requests in flight, and what must hold after it."""

from __future__ import annotations

import asyncio

from messages.client import AsyncClient
from messages.lifecycle.tree import StatusReport
from tests.support.fuzz.inboxes import fuzz_all
from tests.support.fuzz.mutations import resident_bytes
from tests.support.real_server import RealServer
from tests.support.streams import N_STREAMS, Streams

_SPARE_BYTES = 48 << 20


def fuzz_inboxes(server: RealServer, seed: int, n_messages: int) -> None:
    """No incarnation is replaced, no process grows, and every stream has exactly its tokens, also of those that begin later."""
    report, supervisor = server.status(), server.supervisor_pid
    before = {child.name: (child.pid, child.incarnation) for child in report.children}
    n_bytes = {name: resident_bytes(pid) for name, (pid, _) in before.items()}
    asyncio.run(_streams_meanwhile(server, report, seed, n_messages))
    assert {child.name: (child.pid, child.incarnation) for child in server.status().children} == before, server.log()
    assert server.supervisor_pid == supervisor, server.log()
    grown = {name: resident_bytes(pid) - n_bytes[name] for name, (pid, _) in before.items()}
    assert max(grown.values()) < _SPARE_BYTES, grown


async def _streams_meanwhile(server: RealServer, report: StatusReport, seed: int, n_messages: int) -> None:
    fuzz = asyncio.create_task(asyncio.to_thread(fuzz_all, seed, server.run_dir, report, n_messages))
    async with AsyncClient(server.zeromq) as client:
        salt, is_last = 0, False
        while not is_last:
            salt, is_last = salt + 1, fuzz.done()
            streams = Streams(client, salt, 1)
            await asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            streams.check()
    await fuzz
