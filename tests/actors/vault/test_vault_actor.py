"""The vault drops the memory of a rank that may have died of its device, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.vault.vault_actor import VaultActor
from messages.descriptors.async_client import AsyncDescriptorClient
from messages.ids import weights_owner
from messages.lifecycle.lifecycle import Cause
from messages.run_dir import vault_path
from tests.support.memory_cluster import MemoryCluster, ScriptedActor

CAUSES_THAT_KEEP: tuple[Cause, ...] = ("killed", "out_of_memory", "gang", "ended")
CAUSES_THAT_DROP: tuple[Cause, ...] = ("crashed", "faulted", "hung")


@pytest.mark.parametrize("cause", [*CAUSES_THAT_KEEP, *CAUSES_THAT_DROP])
async def test_memory_is_dropped_after_a_death_that_may_be_the_devices(
    cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the run directory of the cluster's actors is the present one
    cluster = MemoryCluster()
    vault = cluster.start(VaultActor, "vault/0", {})
    await cluster.wait_until(lambda: "vault/0" in cluster.up)
    client = AsyncDescriptorClient(vault_path(Path(""), 0))
    for owner in ("worker/0.0", weights_owner("worker/0.0b"), "worker/0.1", "worker/1.0", "scheduler/0"):
        await client.put(owner, "kv", 0)
    for name in ("worker/0.0b", "worker/0.1b", "worker/1.0"):
        cluster.introduce(ScriptedActor(cluster, name))
    await cluster.wait_until(lambda: {"worker/0.0b", "worker/1.0"} <= set(vault.child.peers))
    await cluster.kill("worker/1.0", "crashed")  # another replica's
    await cluster.kill("worker/0.0b", cause)
    await cluster.wait_until(lambda: {"worker/0.0b", "worker/1.0"} <= set(vault.child.deaths))
    left = ["worker/0.0 weights", "worker/0.1", "worker/1.0", "scheduler/0"]
    expected = ["worker/0.0", *left] if cause in CAUSES_THAT_KEEP else left
    assert vault.table.owners == expected
    assert vault.statistics() == {"entries": float(len(expected))}
    client.close()
    await cluster.close()
