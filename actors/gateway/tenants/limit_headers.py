"""What a client is told of the limits of its tenant: in OpenAI's headers, and in refusals. Pure."""

from __future__ import annotations

from actors.gateway.requests.refusals import Refusal, duration_text
from messages.access.allowances import AllowanceState
from messages.access.tenant_policy import LimitName, TenantPolicy
from messages.outcomes import FineCode

_MINUTE_S = 60.0
_LONGEST_RETRY_S = 60.0  # OpenAI's and Anthropic's clients take a longer Retry-After for none, and ask again at once
_WHAT = {
    LimitName.REQUESTS: "requests a minute",
    LimitName.TOKENS: "tokens a minute",
    LimitName.SEQUENCES: "sequences at a time",
    LimitName.DAY: "tokens a day (UTC)",
}


def limit_headers(policy: TenantPolicy, state: AllowanceState) -> dict[str, str]:
    """The headers `x-ratelimit-*`: limits of a minute, what is left of them, and when it will be all of it again."""
    headers = dict[str, str]()
    for name, limit, left, owed in (
        ("requests", policy.requests_per_min, state.requests, 0),
        ("tokens", policy.tokens_per_min, state.tokens, state.owed_tokens),
    ):
        if limit:
            left = min(left, limit)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(left)
            headers[f"x-ratelimit-reset-{name}"] = duration_text((limit - left + owed) * _MINUTE_S / limit)
    return headers


def refused_by(name: LimitName, limit: int, needed: int, retry_after_s: float, tenant: str, headers: dict[str, str]) -> Refusal:
    """The refusal of requests that need so much of a limit. `retry_after_s`: 0: the limit is smaller than what they need."""
    said = f"{name.value}: the limit of the tenant {tenant} is {limit} {_WHAT[name]}"
    if not retry_after_s:
        detail = f"{said}; expected no more than that in one request or batch, got {needed}"
        return Refusal("exceeds_limit", detail, field=name.value, headers=headers, limit=f"{name.value}={limit}")
    why: FineCode = "insufficient_quota" if name is LimitName.DAY else "rate_limit_exceeded"
    detail = f"{said}; there is no room now for {needed} more"
    if retry_after_s > _LONGEST_RETRY_S:
        headers = {**headers, "x-should-retry": "false"}
    return Refusal(why, detail, retry_after_s=retry_after_s, headers=headers, limit=f"{name.value}={limit}")
