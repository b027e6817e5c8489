"""The next standby of a gang begins to load a moment after a promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.config.server_config import ServerConfig, SupervisorSettings
from supervisor.placement.hardware import Gpu
from supervisor.placement.placement import Placement
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree

ON_CORES = Placement("cpu", (), 2, 1, "float32", has_standby=True)
ON_GPUS = Placement("cuda", (Gpu("0", "some GPU", 1 << 30, (9, 0)),), 1, 1, "bfloat16")


@pytest.mark.parametrize(("given_s", "placement", "pause_s"), [(1.0, ON_GPUS, 1.0), (1.0, ON_CORES, 0.3), (0.1, ON_CORES, 0.1)])
def test_it_leaves_the_cores_to_the_first_steps_of_a_takeover(given_s: float, placement: Placement, pause_s: float) -> None:
    config = ServerConfig(supervisor=SupervisorSettings(standby_pause_s=given_s))
    groups = build_tree(config, StartFacts(Path("/s"), Path("/r"), 9, "/models/m", "m", 4096, placement, 8))
    assert {group.standby_pause_s for group in groups if group.has_rendezvous} == {pause_s}
