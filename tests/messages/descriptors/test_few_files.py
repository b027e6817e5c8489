"""A descriptor store whose process can open too few files keeps what it can, and says what it has not kept."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from messages.descriptors import packets
from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.packets import Change
from tests.support.custody.descriptor_store import DEADLINE_S, StoreProcess

pytestmark = pytest.mark.slow


async def test_a_store_that_can_open_too_few_files_says_what_it_has_not_kept(tmp_path: Path) -> None:
    store, not_kept = StoreProcess(tmp_path / "store"), list[str]()
    client = AsyncDescriptorClient(store.path, not_kept.extend)
    await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)
    n_files = len(os.listdir(f"/proc/{store.process.pid}/fd"))
    resource.prlimit(store.process.pid, resource.RLIMIT_NOFILE, (n_files + 2, n_files + 2))
    descriptor = os.memfd_create("test")
    client.tell("gateway/0", [(Change(str(index), b"", True), descriptor) for index in range(5)])
    os.close(descriptor)
    kept = await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)
    assert ([one.key for one in kept], not_kept) == (["0", "1"], ["2", "3", "4"])
    packets.close_all([one.descriptor for one in kept])
    assert not client.closed.done()
    client.close()
    store.kill()
