"""Facts of a start on CPU cores, for tests of what follows from a configuration."""

from __future__ import annotations

from pathlib import Path

from supervisor.placement.placement import Placement
from supervisor.start_facts import StartFacts

FACTS = StartFacts(Path("/s"), Path("/r"), 5, "hash-chain", "hash-chain", 0, Placement("cpu", (), 1, 1, ""), 2)
