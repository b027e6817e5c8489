"""What a child process reads as JSON from its standard input when it starts."""

from __future__ import annotations

import msgspec

from messages.errors import ConfigError
from messages.log_file.rotated_file import NO_LOG_FILE, LogFile

LISTEN_SOCKET = "listen"  # name of the descriptor of the listening TCP socket that all gateways share
CUSTODIAN_SOCKET = "custodian"  # name of the descriptor of the listening unix socket of all custodians, one after the other


class SpawnSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one incarnation of an actor, its supervisor's address, and its section of the configuration."""

    name: str  # "gateway/0", "worker/0.1"
    incarnation: int
    endpoint: str  # where to bind the inbox
    supervisor_endpoint: str
    supervisor_incarnation: int
    run_dir: str  # private directory of this server: sockets, journals, rendezvous files
    log_format: str  # "json" or "console"
    log_level: str  # "debug", "info", "warning", "error"
    settings: msgspec.Raw  # the owner's settings struct, as JSON
    beat_s: float = 0.5  # the period of its Progress messages
    supervisor_pid: int = 0  # whose death it watches; 0: of nobody
    orphan_s: float = 60.0  # how long it goes on serving after that death, unless the next supervisor adopts it
    descriptors: dict[str, int] = {}  # inherited file descriptors by name, such as LISTEN_SOCKET
    log_file: LogFile = NO_LOG_FILE  # of the whole server
    gang_dir: str = ""  # workers: rendezvous directory of this incarnation of the gang


def read_spawn_spec(text: bytes) -> SpawnSpec:
    """Decode a spawn spec.

    Raises: ConfigError naming the field.
    """
    try:
        return msgspec.json.decode(text, type=SpawnSpec)
    except msgspec.DecodeError as error:
        raise ConfigError(f"spawn spec: {error}") from None
