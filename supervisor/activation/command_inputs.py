"""What the process of `supervisor start` has got beside its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.activation.passed_sockets import PassedSocket


@dataclass(frozen=True)
class CommandInputs:
    """`flags`: of the command line, for a restart with other settings; None: such a restart is not possible. `passed`: sockets
    of the service manager."""

    flags: dict[str, Any] | None = None
    passed: tuple[PassedSocket, ...] = ()


NO_INPUTS = CommandInputs()
