"""A scripted cache directory, and a gateway between two replicas and it."""

from __future__ import annotations

from messages.caches import prefixes
from tests.support.gateway.gateway_rig import Rig
from tests.support.memory_cluster import ScriptedActor


class FakeDirectory(ScriptedActor):
    """Answers that one replica, `holder`, has every page; answers nothing when `holder` is None."""

    holder: int | None = 1

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, prefixes.FindPrefix) and self.holder is not None:
            found = prefixes.PrefixFound(query=message.query, replicas=[self.holder], pages=[len(message.hashes)])
            self.mailbox.send(sender, found)


async def two_replicas(r: Rig) -> FakeDirectory:
    """Start two schedulers and a cache directory, and wait until the gateway knows them."""
    for name in ("scheduler/0", "scheduler/1"):
        await r.add_scheduler(name)
    directory = FakeDirectory(r.cluster, "cache_directory/0")
    r.cluster.introduce(directory)
    await r.cluster.wait_until(lambda: r.gateway.living("cache_directory"))
    return directory
