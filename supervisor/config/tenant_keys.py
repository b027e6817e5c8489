"""Which tenants have a key that can be used. A misspelt name in the configuration, or in a command, would go unnoticed else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from messages.access.key_file import KEY_FILE, read_keys
from messages.access.tenant_policy import DEFAULT_TENANT
from messages.errors import ConfigError


def without_key(tenants: Iterable[str], state_dir: Path) -> list[str]:
    """Those of these tenants, in order, to whom no key in this state directory belongs; none if its keys cannot be read. The
    tenant "default" needs none."""
    try:
        keys = read_keys(state_dir / KEY_FILE)
    except ConfigError:
        return []
    now_s = time.time()
    known = {key.tenant for key in keys if key.is_valid(now_s)} | {DEFAULT_TENANT}
    return sorted(set(tenants) - known)


def warn_of_tenants_without_key(tenants: Iterable[str], state_dir: Path) -> None:
    """Write a line into the log if no key belongs to some of the configured tenants."""
    if found := without_key(tenants, state_dir):
        structlog.get_logger().warning("no key belongs to these tenants yet: is a name misspelt?", tenants=", ".join(found))
