"""The seal table goes into each new vault of its replica."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.scheduler.gang.seal_store import SealStore
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from messages.run_dir import vault_path


async def test_a_new_vault_gets_the_table_while_the_scheduler_works_on(tmp_path: Path) -> None:
    path = vault_path(tmp_path, 0)
    path.parent.mkdir(exist_ok=True)
    first = DescriptorServer(path, DescriptorTable(8))
    store = SealStore(tmp_path, 0, is_on=True)
    table = await asyncio.to_thread(store.pages.open, 5, 10)
    first.close()
    assert table is not None
    was_given = asyncio.Event()
    second = DescriptorServer(path, DescriptorTable(8), was_given.set)
    store.give_again()  # the second vault cannot answer before this returns, because it is on this loop
    async with asyncio.timeout(60):
        await was_given.wait()
    table.record(3, 1 << 40, 0, bytes(64))
    kept = await asyncio.to_thread(SealStore(tmp_path, 0, is_on=True).pages.left)
    assert kept is not None
    assert (kept.generation, kept.n_pages, kept.read().pages.tolist()) == (5, 10, [3])
    second.close()
