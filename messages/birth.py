"""What a child process is told at its birth, as JSON on its standard input."""

from __future__ import annotations

import msgspec

from messages.errors import ConfigError

LISTEN_SOCKET = "listen"  # name of the descriptor of the listening TCP socket that all gateways share


class Birth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Identity of one life of one actor, where its supervisor is, and its section of the configuration."""

    name: str  # "gateway/0", "worker/0.1"
    incarnation: int
    endpoint: str  # where to bind the inbox
    supervisor_endpoint: str
    supervisor_incarnation: int
    run_dir: str  # private directory of this server: sockets, journals, rendezvous files
    log_format: str  # "json" or "console"
    log_level: str  # "debug", "info", "warning", "error"
    settings: msgspec.Raw  # the owner's settings struct, as JSON
    beat_s: float = 0.5  # how often to say Progress
    descriptors: dict[str, int] = {}  # inherited file descriptors by name, such as LISTEN_SOCKET
    gang_dir: str = ""  # workers: rendezvous directory of this incarnation of the gang


def read_birth(text: bytes) -> Birth:
    """Decode a birth.

    Raises: ConfigError naming the field.
    """
    try:
        return msgspec.json.decode(text, type=Birth)
    except msgspec.DecodeError as error:
        raise ConfigError(f"birth: {error}") from None
