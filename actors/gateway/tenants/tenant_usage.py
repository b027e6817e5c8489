"""What tenants have used at one gateway, as metrics and as figures for the status. Only the first tenants get names; the others
are counted together as `OTHER_TENANTS`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from actors.gateway.requests.request import Request
from messages.access.tenant_policy import MOST_NAMED_TENANTS, OTHER_TENANTS, REQUESTS_OF, TOKENS_OF


class TenantUsage:
    """Counts requests, tokens and refusals by tenant."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._names: set[str] = set()
        self._figures: dict[str, float] = {}
        self._requests = Counter(
            "tardigrade_tenant_requests", "Requests of a tenant that have ended.", ["tenant"], registry=registry
        )
        self._tokens = Counter(
            "tardigrade_tenant_tokens", "Tokens of the prompts and answers of a tenant.", ["tenant", "part"], registry=registry
        )
        self._refused = Counter(
            "tardigrade_tenant_refused", "Requests of a tenant refused by one of its limits.", ["tenant", "limit"],
            registry=registry,
        )  # fmt: skip

    def ended(self, tenant: str, request: Request) -> None:
        """A request is over."""
        self.used(tenant, sum(request.n_prompt), request.n_generated)

    def used(self, tenant: str, n_prompt: int, n_output: int) -> None:
        """A request or a call has used so many tokens."""
        name = self._name_of(tenant)
        self._requests.labels(name).inc()
        self._tokens.labels(name, "prompt").inc(n_prompt)
        self._tokens.labels(name, "output").inc(n_output)
        for key, n in ((REQUESTS_OF + name, 1), (TOKENS_OF + name, n_prompt + n_output)):
            self._figures[key] = self._figures.get(key, 0.0) + n

    def refused(self, tenant: str, limit: str) -> None:
        """A limit has refused a request."""
        self._refused.labels(self._name_of(tenant), limit).inc()

    def statistics(self) -> dict[str, float]:
        """Requests that have ended and tokens that were used, by tenant, since this gateway started."""
        return self._figures

    def _name_of(self, tenant: str) -> str:
        if tenant in self._names:
            return tenant
        if len(self._names) >= MOST_NAMED_TENANTS:
            return OTHER_TENANTS
        self._names.add(tenant)
        return tenant
