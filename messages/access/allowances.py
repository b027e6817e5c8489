"""Messages between gateways and the accounts of tenants: what requests need before they are accepted, and what they have used.

All that a gateway tells of a request is counted from its beginning, so a message that comes twice, or after one was lost, does
no harm. Requests of tenants without limits are in none of them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.access.tenant_policy import LimitName
from messages.wire.message import Count, Message, Part, ShortText

MOST_WANTED = 4096  # requests in one question, as in one batch
MOST_TOLD = 1024  # requests in one message
_Some = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class WantedAllowance(Part, frozen=True):
    """What one request needs: the tokens of its prompts, and those of its answers at most."""

    request: ShortText
    sequences: Count
    prompt_tokens: Count
    output_tokens: Count


class TakeAllowance(Message, frozen=True):
    """A gateway wants to accept these requests of a tenant, all or none."""

    call: Count
    tenant: ShortText
    wanted: Annotated[list[WantedAllowance], msgspec.Meta(max_length=MOST_WANTED)]


class AllowanceState(Part, frozen=True):
    """What a tenant has left now, by limit. It says nothing where there is no limit. `owed_tokens`: were used beyond those of a
    minute, and are paid first."""

    requests: _Some = 0
    tokens: _Some = 0
    sequences: _Some = 0
    day_tokens: _Some = 0
    owed_tokens: _Some = 0


class AllowanceTaken(Message, frozen=True):
    """The answer to TakeAllowance. `refused_by`: the limit that has refused it; None: it is taken. `needed`: what it needs of
    that limit; `retry_after_s`: when there may be so much; 0: never, because the limit is smaller."""

    call: Count
    state: AllowanceState
    refused_by: LimitName | None = None
    limit: Count = 0
    needed: Count = 0
    retry_after_s: float = 0.0


class SpentAllowance(Part, frozen=True):
    """What one request has used so far. `most_tokens`: of its prompts and answers together. `is_recovered`: it was over before
    its gateway died, and the accounts may have settled and forgotten it; or its gateway does not know yet whether they have
    allowed it. So it counts only where they know it as open."""

    request: ShortText
    tenant: ShortText
    sequences: Count
    most_tokens: Count
    tokens: Count
    is_over: bool = False
    is_recovered: bool = False


class UsageTold(Message, frozen=True):
    """What has changed of the requests of a gateway. `number` rises; `noted`: the newest number that the gateway knows to be on
    disk, so that what was over by then need not be remembered.

    `listing`: not 0 in the parts of a list of all its requests; the last part ends it, and what was in no part is over.
    """

    number: Count
    spent: Annotated[list[SpentAllowance], msgspec.Meta(max_length=MOST_TOLD)]
    noted: Count = 0
    listing: Count = 0
    is_last: bool = False


class UsageNoted(Message, frozen=True):
    """What a gateway has told up to this number is on disk."""

    number: Count
