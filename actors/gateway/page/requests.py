"""The requests of one gateway that have not ended, as the page lists them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from actors.gateway.requests.request import Request

MOST_ROWS = 100  # of each tenant that looks, or of all tenants together
_MOST_SHOWN = 16  # characters of an id that is a secret


class RequestPhase(StrEnum):
    """How far a request has come."""

    WAITING = "waiting"  # for a scheduler, or in the queue of one
    PROMPT = "prompt"  # a scheduler has taken it, and there is no token yet
    ANSWER = "answer"  # tokens come


class RequestRow(msgspec.Struct, frozen=True):
    """One request. `tenant`: "" without API keys. `age_s`: since it was accepted."""

    id: str
    tenant: str
    model: str
    api: str
    phase: RequestPhase
    age_s: float
    prompt_tokens: int
    output_tokens: int
    sequences: int
    gateway: str
    schedulers: list[str]


class RowsWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose requests are looked at: those of everyone, and those of these tenants."""

    everyone: bool
    tenants: list[str]


class RequestRows(msgspec.Struct, frozen=True):
    """The oldest requests of each view, and how many there are of each tenant."""

    rows: list[RequestRow]
    n_by_tenant: dict[str, int]


class Listing:
    """Lists the requests of one gateway. `hides_ids`: who knows an id can read its stream, so only a part is shown."""

    def __init__(
        self, gateway: str, tenant_of: Callable[[bytes], str], model_name: Callable[[Request], str], *, hides_ids: bool
    ) -> None:
        self._gateway, self._tenant_of, self._model_name, self._hides_ids = gateway, tenant_of, model_name, hides_ids

    def rows(self, requests: Sequence[Request], now_s: float, wanted: RowsWanted) -> RequestRows:
        """The rows that are wanted, the oldest first, at most `MOST_ROWS` of each view."""
        of_whom = [(self._tenant_of(one.spec.terms.caller), one) for one in sorted(requests, key=lambda one: one.began_s)]
        chosen = {one.number for _, one in of_whom[:MOST_ROWS]} if wanted.everyone else set[int]()
        for tenant in wanted.tenants:
            chosen |= {one.number for _, one in [pair for pair in of_whom if pair[0] == tenant][:MOST_ROWS]}
        rows = [self._row(tenant, one, now_s) for tenant, one in of_whom if one.number in chosen]
        return RequestRows(rows, dict(Counter(tenant for tenant, _ in of_whom)))

    def _row(self, tenant: str, request: Request, now_s: float) -> RequestRow:
        spec, schedulers = request.spec, sorted({one.scheduler for one in request.sequences if one.scheduler})
        is_taken = any(one.is_taken for one in request.sequences)
        phase = RequestPhase.ANSWER if request.first_token_s else RequestPhase.PROMPT if is_taken else RequestPhase.WAITING
        return RequestRow(
            id=part_of(spec.request) if self._hides_ids else spec.request,
            tenant=tenant,
            model=self._model_name(request),
            api=spec.api,
            phase=phase,
            age_s=round(now_s - request.began_s, 3),
            prompt_tokens=sum(request.n_prompt),
            output_tokens=request.n_generated,
            sequences=len(request.sequences),
            gateway=self._gateway,
            schedulers=schedulers,
        )


def part_of(request_id: str) -> str:
    """The beginning of an id, from which nobody can guess the rest: at most half of it."""
    return request_id[: min(len(request_id) // 2, _MOST_SHOWN)] + "…"


def merged(parts: Iterable[RequestRows]) -> RequestRows:
    """What several gateways have listed, together, the oldest first."""
    rows, n_by_tenant = list[RequestRow](), Counter[str]()
    for part in parts:
        rows += part.rows
        n_by_tenant.update(part.n_by_tenant)
    return RequestRows(sorted(rows, key=lambda row: -row.age_s), dict(n_by_tenant))
