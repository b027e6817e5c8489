"""The CURVE keys of a server, as its start makes them and `supervisor keys zeromq` shows them."""

from __future__ import annotations

from pathlib import Path

from messages.access.curve_keys import CURVE_KEY_FILE, curve_keys_in
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig


def make_curve_keys(config: ServerConfig, state_dir: Path) -> None:
    """Make the keys that gateways of this configuration read, unless they are there. Raises: ConfigError."""
    if config.zeromq_port and config.has_curve:
        public_key_in(state_dir)


def public_key_in(state_dir: Path) -> str:
    """The public key of the server with this state directory, with a new pair if it has none. Raises: ConfigError."""
    path = state_dir / CURVE_KEY_FILE
    try:
        return curve_keys_in(path).public
    except OSError as error:
        raise ConfigError(f"zeromq_curve: expected a file that can be made at {path}, got {error.strerror}") from None
