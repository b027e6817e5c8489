"""What one run of the server consists of, determined before its first child is started."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from messages.birth import Birth
from supervisor.children.run_dir import RunDir
from supervisor.config import SupervisorSettings
from supervisor.policy.child_spec import Group


@dataclass(frozen=True)
class Server:
    """Everything that `supervisor start` has determined. `groups` are in start order; `url` is where HTTP clients connect."""

    groups: tuple[Group, ...]
    run_dir: RunDir
    settings: SupervisorSettings
    model_name: str
    url: str
    log_format: str
    log_level: str
    layout: str = ""  # replicas, ranks, devices and dtype as text, for the status

    def birth_template(self, incarnation: int) -> Birth:
        """The fields that every Birth of this server has in common. `incarnation` is the supervisor's."""
        return Birth(
            name="",
            incarnation=0,
            endpoint="",
            supervisor_endpoint=self.run_dir.supervisor_endpoint,
            supervisor_incarnation=incarnation,
            run_dir=str(self.run_dir.path),
            log_format=self.log_format,
            log_level=self.log_level,
            settings=msgspec.Raw(b"{}"),
            beat_s=self.settings.beat_s,
        )
