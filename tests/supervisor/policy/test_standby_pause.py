"""The next standby of a gang begins to load a moment after a promotion."""

from __future__ import annotations

import pytest

from supervisor.config.server_config import ServerConfig, SupervisorSettings
from supervisor.placement.placement import Placement
from tests.supervisor.test_tree import on_cpu, on_gpus, tree_of


@pytest.mark.parametrize(
    ("given_s", "placement", "pause_s"),
    [(1.0, on_gpus(), 1.0), (1.0, on_cpu(tp=2, has_standby=True), 0.3), (0.1, on_cpu(has_standby=True), 0.1)],
)
def test_it_leaves_the_cores_to_the_first_steps_of_a_takeover(given_s: float, placement: Placement, pause_s: float) -> None:
    config = ServerConfig(supervisor=SupervisorSettings(standby_pause_s=given_s))
    assert {group.standby_pause_s for group in tree_of(config, placement) if group.has_rendezvous} == {pause_s}
