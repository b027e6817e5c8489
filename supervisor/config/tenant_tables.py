"""The tables `[tenants.NAME]` of the configuration, checked one by one, so that an error names the tenant and the key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from messages.access.tenant_policy import TENANT_PATTERN, TenantPolicy
from supervisor.config.config_file import Table, errors_of

TENANTS = "tenants"
_RULE = "a name of 1 to 64 letters, digits, dots, hyphens or underscores"


def tenant_errors(table: Table) -> Iterator[str]:
    """What is wrong with the tenants of a configuration."""
    tenants: Any = table.get(TENANTS, {})
    if not isinstance(tenants, dict):
        yield f"{TENANTS}: expected a table for each tenant, as [{TENANTS}.NAME] makes one, got {tenants!r}"
        return
    for name, given in tenants.items():
        if not re.fullmatch(TENANT_PATTERN, name):
            yield f"{TENANTS}: expected {_RULE}, got {name!r}"
        elif not isinstance(given, dict):
            yield f"{TENANTS}.{name}: expected a table, got {given!r}"
        else:
            yield from (f"{TENANTS}.{name}.{error}" for error in errors_of(given, TenantPolicy))
