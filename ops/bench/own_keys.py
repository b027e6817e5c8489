"""API keys for the clients of a measurement, in the file of a server of ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from messages.access.api_key import KeyRecord, Role
from messages.access.key_file import KEY_FILE, change_keys
from supervisor.access.key_changes import with_new


def add_key(state_dir: Path, tenant: str, role: Role = Role.USER) -> str:
    """A new key of a tenant, which the server knows within a second. Raises: ConfigError, OSError."""
    texts = list[str]()

    def add(keys: Sequence[KeyRecord]) -> Sequence[KeyRecord]:
        text, after = with_new(keys, tenant, role, time.time())
        texts.append(text)
        return after

    change_keys(state_dir / KEY_FILE, add)
    return texts[0]
