"""A real cache directory beside the gateways of a rig, which keeps answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.cache_directory.directory_actor import DirectoryActor
from actors.cache_directory.settings import DirectorySettings
from messages.transport.mailbox import MemoryMailbox
from tests.support.gateway.gateway_rig import Rig
from tests.support.memory_cluster import spawn_spec_of


async def add_directory(r: Rig, folder: Path, incarnation: int = 1) -> DirectoryActor:
    """Start a cache directory, and wait until the gateway knows it."""
    cluster, name = r.cluster, "cache_directory/0"
    cluster.incarnation_of[name] = incarnation
    settings = DirectorySettings(keeps_answers=True, keeps_similar=True, answers_file=str(folder / "answers"))
    actor = DirectoryActor(spawn_spec_of(name, settings, incarnation), lambda n, i, e: MemoryMailbox(cluster.network, n, i, e))
    cluster.actors[name] = (actor, asyncio.ensure_future(actor.run()))
    await cluster.wait_until(lambda: r.gateway.incarnation_of(name) == incarnation)
    return actor
