"""Containers as targets of a drill: found by name or image, killed and paused through docker or podman."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from messages.errors import ConfigError

_COMMAND_S = 60.0
_TOOLS = ("docker", "podman")


@dataclass(frozen=True)
class Container:
    """A running container. `tool`: the command that it was found with."""

    tool: str
    container_id: str
    name: str

    def kill(self) -> None:
        """Send SIGKILL to its first process. Raises: ConfigError."""
        _run(self.tool, "kill", self.container_id)

    def pause(self) -> None:
        """Freeze all its processes. Raises: ConfigError."""
        _run(self.tool, "pause", self.container_id)

    def resume(self) -> None:
        """Let its processes continue. Raises: ConfigError."""
        _run(self.tool, "unpause", self.container_id)


def find_container(pattern: re.Pattern[str]) -> Container | None:
    """The newest running container whose "NAME IMAGE" matches. Raises: ConfigError when there is no tool, or it fails."""
    tool = next(filter(shutil.which, _TOOLS), None)
    if tool is None:
        raise ConfigError(f"fault: expected {' or '.join(_TOOLS)} for a container, got neither")
    for line in _run(tool, "ps", "--format", "{{.ID}} {{.Names}} {{.Image}}").splitlines():  # the newest comes first
        container_id, _, name_and_image = line.partition(" ")
        if pattern.search(name_and_image):
            return Container(tool, container_id, name_and_image.partition(" ")[0])
    return None


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"fault: expected {' '.join(command)!r} to succeed, got {error}") from None
    if done.returncode:
        last = done.stderr.strip()[-200:]
        raise ConfigError(f"fault: expected {' '.join(command)!r} to succeed, got exit status {done.returncode}: {last}")
    return done.stdout
