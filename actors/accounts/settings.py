"""What the accounts are told by the supervisor."""

from __future__ import annotations

import msgspec

from messages.access.tenant_policy import TenantPolicy


class AccountsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policies of the configuration, and the files of the state directory."""

    tenants: dict[str, TenantPolicy] = {}
    tenants_file: str = ""  # of policies that were set while the server runs
    accounts_file: str = ""  # of what the tenants have used
