"""One example of each message between gateways and the accounts."""

from __future__ import annotations

from messages.access import allowances
from messages.access.tenant_policy import LimitName
from messages.wire.message import Message

ALLOWANCES: tuple[Message, ...] = (
    allowances.TakeAllowance(
        call=9,
        tenant="acme",
        wanted=[allowances.WantedAllowance(request="req-1", sequences=2, prompt_tokens=7, output_tokens=32)],
    ),
    allowances.AllowanceTaken(
        call=9,
        state=allowances.AllowanceState(requests=3, tokens=120, sequences=1, day_tokens=5000, owed_tokens=7),
        refused_by=LimitName.TOKENS,
        limit=600,
        needed=39,
        retry_after_s=1.5,
    ),
    allowances.UsageTold(
        number=4,
        spent=[
            allowances.SpentAllowance(
                request="req-1", tenant="acme", sequences=2, most_tokens=39, tokens=12, is_over=True
            )
        ],
        noted=2,
        listing=1,
        is_last=True,
    ),
    allowances.UsageNoted(number=4),
)  # fmt: skip
