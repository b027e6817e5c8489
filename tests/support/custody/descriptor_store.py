"""A descriptor store as a process of its own, which a test may kill. Run as a module with the path of its socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.client import DescriptorClient
from messages.descriptors.packets import close_all
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable

DEADLINE_S = 60.0


class StoreProcess:
    """A store that listens at `path` when the constructor returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen([sys.executable, "-m", __name__, str(path)], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def client(self) -> DescriptorClient:
        """A new connection."""
        return DescriptorClient(self.path, timeout_s=DEADLINE_S)

    def kill(self) -> None:
        """Kill the process, and wait until it has gone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


async def keys_at(path: Path) -> list[str]:
    """The keys of gateway/0 in the store at `path`."""
    client = AsyncDescriptorClient(path)
    found = await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)
    close_all([one.descriptor for one in found])
    client.close()
    return [one.key for one in found]


async def serve(path: Path) -> None:
    """Serve until this process is killed."""
    server = DescriptorServer(path, DescriptorTable(max_entries=1024))
    print("ready", flush=True)
    await asyncio.Event().wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
