"""A gateway whose journal writes to a disk that can be told to refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from messages.generation.sampling import Sampling
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.faulty_disk import FaultyDisk, replace_disk
from tests.support.gateway.gateway_rig import Rig, rig

GREEDY = Sampling(temperature=0.0)
COMPLETION = {"prompt": [1, 2], "max_tokens": 30, "temperature": 0}


@asynccontextmanager
async def journal_rig(**settings: Any) -> AsyncIterator[tuple[Rig, FakeScheduler, FaultyDisk]]:
    """A gateway with a ZeroMQ endpoint, a scheduler that sends when the test calls `step`, and the disk of its journal."""
    with TemporaryDirectory(prefix="tg-") as folder:
        places = {"zeromq_endpoint": f"ipc://{folder}/zeromq", "journal_path": str(Path(folder) / "journal")}
        async with rig(with_scheduler=False, **places, **settings) as r:
            scheduler = await r.add_scheduler(is_automatic=False)
            yield r, scheduler, replace_disk(r.gateway.journal)
