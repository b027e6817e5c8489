"""What a tenant may use of a server, and how it stands beside other tenants. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from messages.limits import PageShare, Priority, Weight

DEFAULT_TENANT = "default"  # whose policy is that of all tenants without one
TENANT_PATTERN = "^[A-Za-z0-9._-]{1,64}$"
TenantName = Annotated[str, msgspec.Meta(pattern=TENANT_PATTERN)]
_MOST_PRIORITY = 100
SEQUENCES_OF, TODAY_OF = "sequences of ", "tokens today of "  # before a tenant's name, in the figures of the accounts
REQUESTS_OF, TOKENS_OF = "ended requests of ", "used tokens of "  # the same in the figures of a gateway, since it started
MOST_NAMED_TENANTS = 32  # so many tenants have names in the metrics and figures of one process
OTHER_TENANTS = "(other)"  # all others together; no tenant has this name, or its keys would show what they all use
_Limit = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # 0: none


class LimitName(StrEnum):
    """The limits of a tenant, by the names of their settings."""

    REQUESTS = "requests_per_min"
    TOKENS = "tokens_per_min"
    SEQUENCES = "max_sequences"
    DAY = "tokens_per_day"


class TenantPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The weight, the priority and the limits of one tenant. Tokens are those of prompts and of answers."""

    weight: Weight = 1.0  # its share beside other tenants, where a replica is shared fairly
    # its requests get this priority, and clients can only let them run later; none: the priority that clients ask for
    priority: Priority | None = None
    page_share: PageShare = 1.0  # the part of a replica's pages that its sequences may hold
    cache_share: PageShare = 1.0  # the part of each cache that what is cached of it may take while others need room
    requests_per_min: _Limit = 0  # 0: any number
    tokens_per_min: _Limit = 0  # 0: any number
    max_sequences: _Limit = 0  # accepted at a time, at all gateways together; 0: any number
    tokens_per_day: _Limit = 0  # from midnight to midnight, UTC; 0: any number

    @property
    def is_limited(self) -> bool:
        """True if its requests have to be counted."""
        return bool(self.requests_per_min or self.tokens_per_min or self.max_sequences or self.tokens_per_day)

    def priority_for(self, asked: int) -> int:
        """The priority of a request for which its client has asked `asked`."""
        return asked if self.priority is None else min(self.priority + max(asked, 0), _MOST_PRIORITY)


NO_POLICY = TenantPolicy()


def policy_in(tenants: Mapping[str, TenantPolicy], tenant: str) -> TenantPolicy:
    """The policy of a tenant: its own, or that of all tenants without one."""
    return tenants.get(tenant) or tenants.get(DEFAULT_TENANT) or NO_POLICY
