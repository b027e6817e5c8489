"""Who gets a vault."""

from __future__ import annotations

import pytest

from gpu_workers.settings import DeviceKind
from supervisor.placement.placement import Placement


@pytest.mark.parametrize(
    ("device", "has_standby", "asked", "has_vault"),
    [
        ("cuda", False, None, True),
        ("cuda", False, False, False),
        ("cuda", True, False, True),
        ("cpu", False, None, False),
        ("cpu", False, True, True),
        ("cpu", True, None, True),
    ],
)
def test_gpus_and_standbys_have_a_vault(device: DeviceKind, has_standby: bool, asked: bool | None, has_vault: bool) -> None:
    assert Placement(device, (), 1, 1, "", has_standby=has_standby).has_vault(asked) is has_vault
