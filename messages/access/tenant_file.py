"""The policies of tenants that were set while a server runs: JSON in the state directory, replaced as a whole. Commands and
gateways change it; gateways and the accounts read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from messages.access.followed_files import FollowedFiles
from messages.access.private_file import changing, read_private, replace_private
from messages.access.tenant_policy import TenantName, TenantPolicy, policy_in
from messages.errors import ConfigError

TENANT_FILE = "tenants.json"  # in the state directory
MOST_TENANTS = 65_536  # with a policy of their own in this file


class _Tenants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    tenants: dict[TenantName, TenantPolicy]


_VERSION = 1
Policies = dict[str, TenantPolicy]


def read_tenants(path: Path) -> Policies:
    """The policies in a file, by tenant; none if it does not exist. Raises: ConfigError for one that cannot be read, or that
    others may change."""
    raw = read_private(path)
    if raw is None:
        return {}
    try:
        found = msgspec.json.decode(raw, type=_Tenants)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: expected a file of tenants: {error}") from None
    if found.version != _VERSION:
        raise ConfigError(f"{path}: expected version {_VERSION}, got {found.version}")
    return dict(found.tenants)


def change_tenants(path: Path, change: Callable[[Policies], Policies]) -> None:
    """Replace the policies in a file by what `change` makes of them. Changes at the same time wait for each other.

    Raises: ConfigError, also for too many tenants, and OSError; then the file is as it was.
    """
    with changing(path):
        after = change(read_tenants(path))
        if len(after) > MOST_TENANTS:
            raise ConfigError(f"{path}: expected at most {MOST_TENANTS} tenants, got {len(after)}")
        content = msgspec.json.encode(_Tenants(_VERSION, after))
        replace_private(path, msgspec.json.format(content, indent=2))


class TenantBook:
    """The policies that count now: those of the file, and beside them those of the configuration."""

    def __init__(self, configured: Mapping[str, TenantPolicy], path: Path) -> None:
        """With a file that cannot be read the configuration counts until it can."""
        self._configured, self._path = dict(configured), path
        self.policies = self._configured
        self._files = FollowedFiles([path])
        self._has_read = False
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed. One that cannot be read leaves the policies as they are."""
        if not self._files.are_due():
            return
        try:
            self.policies = self._configured | read_tenants(self._path)
        except ConfigError as error:
            if not self._files.were_not_read(error):
                return
            which = "again, the old policies count" if self._has_read else "yet, those of the configuration count"
            structlog.get_logger().error(f"tenants not read {which}", reason=str(error))
            return
        self._has_read = True
        self._files.were_read()

    def policy_of(self, tenant: str) -> TenantPolicy:
        """The policy of a tenant."""
        return policy_in(self.policies, tenant)

    def change(self, change: Callable[[Policies], Policies]) -> None:
        """Change the file, and go by it. Raises: ConfigError, OSError."""
        change_tenants(self._path, change)
        self.refresh()
