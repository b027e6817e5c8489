"""The vault: a descriptor store for the KV memory and the weights of one replica, and for its seal tables.

    owner                 entry                                         put by
    --------------------  --------------------------------------------  -------------------------------------------------
    worker/0.1            the KV memory of rank 1, whichever its seat   the rank that uses it, when it first begins an epoch
                          the places of its host tier                   as the KV memory
    worker/0.1 weights    the finished weights of that rank             the rank that has loaded them
    scheduler/0           the seal table: what the pages hold           the scheduler
                          the same of the places of the other tiers     the scheduler

It maps nothing and computes nothing, so nothing that a gang does can harm it. When a rank dies in a way that may be the
device's fault, its KV memory and its host tier are dropped: the next gang computes everything again. Weights stay: no rank can
write them, and who maps them compares their checksum. After its own death the processes that use the memory put their
descriptors into the next vault.
"""

from __future__ import annotations

from pathlib import Path

from actors.actor import Actor
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from messages.ids import memory_owner, replica_of, role_of
from messages.lifecycle.lifecycle import leaves_memory_intact
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.run_dir import vault_path
from messages.transport.mailbox import MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox

_MAX_ENTRIES = 1024


class VaultActor(Actor):
    """Serves the descriptor store of one replica. Drops KV memory and host tier of a rank whose death may be its device's
    fault."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        super().__init__(spawn_spec, make_mailbox)
        self.table = DescriptorTable(_MAX_ENTRIES)
        self._server: DescriptorServer | None = None

    async def start(self) -> dict[str, str]:
        self._server = DescriptorServer(vault_path(Path(self.spawn_spec.run_dir), replica_of(self.spawn_spec.name)), self.table)
        return {}

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def peer_down(self, name: str, incarnation: int) -> None:
        is_own_rank = role_of(name) == "worker" and replica_of(name) == replica_of(self.spawn_spec.name)
        if is_own_rank and not leaves_memory_intact(self.child.deaths[name].cause):
            self.log.warning("KV memory and host tier dropped", rank=name, cause=self.child.deaths[name].cause)
            self.table.drop(memory_owner(name))

    def statistics(self) -> dict[str, float]:
        return {"entries": float(len(self.table))}


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of a vault; returns the exit status."""
    return await VaultActor(spawn_spec).run()
