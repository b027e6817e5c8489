"""The CURVE key pair of a server, with which ZeroMQ over TCP is encrypted. Clients know the public key; that is how they know
the server. Keys are 40 characters of Z85, as ZeroMQ writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from messages.access.private_file import read_private, replace_private
from messages.errors import ConfigError

CURVE_KEY_FILE = "zeromq-key.json"  # in the state directory
KEY_CHARACTERS = 40
_VERSION = 1
_Key = Annotated[str, msgspec.Meta(min_length=KEY_CHARACTERS, max_length=KEY_CHARACTERS)]


class CurveKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pair. `public` is no secret."""

    version: int
    public: _Key
    secret: _Key

    def __repr__(self) -> str:
        return f"CurveKeys(public={self.public!r})"


def read_curve_keys(path: Path) -> CurveKeys:
    """The pair in a file. Raises: ConfigError for one that is missing, cannot be read, or that others may change."""
    raw = read_private(path)
    if raw is None:
        raise ConfigError(f"{path}: expected the ZeroMQ keys of a server, got no file")
    try:
        found = msgspec.json.decode(raw, type=CurveKeys)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: expected the ZeroMQ keys of a server: {error}") from None
    if found.version != _VERSION:
        raise ConfigError(f"{path}: expected version {_VERSION}, got {found.version}")
    return found


def curve_keys_in(path: Path) -> CurveKeys:
    """The pair in a file, which is made if it is missing. Raises: ConfigError; OSError when it cannot be written."""
    if not path.exists():
        import zmq

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        public, secret = (key.decode("ascii") for key in zmq.curve_keypair())
        replace_private(path, msgspec.json.encode(CurveKeys(_VERSION, public, secret)))
    return read_curve_keys(path)
