"""Which directory a server has for its journals and its log file."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from supervisor.config.server_config import ServerConfig
from supervisor.directories.state_dir import can_be_made, default_state_dir


def state_dir_of(config: ServerConfig, run_dir: Path) -> Path:
    """The state directory: the configured one; a configured or temporary run directory; else the default for this port, or the
    run directory if the default cannot be written."""
    if config.state_dir:
        return Path(config.state_dir)
    if config.run_dir or not config.port:
        return run_dir
    found = default_state_dir(config.port, os.environ, Path(os.path.expanduser("~")))
    if can_be_made(found):
        return found
    structlog.get_logger().warning("the journals do not survive a reboot: set state_dir", wanted=str(found), used=str(run_dir))
    return run_dir
