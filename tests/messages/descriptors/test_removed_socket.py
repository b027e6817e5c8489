"""A store whose socket somebody removes, as programs that clean /tmp do, is found again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.packets import close_all
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from tests.support.waiting import DEADLINE_S, until


async def test_a_socket_whose_file_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    server = DescriptorServer(path, DescriptorTable(8))
    old = AsyncDescriptorClient(path)
    descriptor = os.memfd_create("kept")
    for nth in range(2):
        os.unlink(path)
        await until(lambda: os.path.exists(path))
        new = AsyncDescriptorClient(path)
        await asyncio.wait_for(new.put("gateway/0", str(nth), descriptor), DEADLINE_S)
        new.close()
    found = await asyncio.wait_for(old.find("gateway/0"), DEADLINE_S)
    assert [one.key for one in found] == ["0", "1"]
    close_all([descriptor, *(one.descriptor for one in found)])
    old.close()
    server.close()
