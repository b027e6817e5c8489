"""The access log: one line for each request that is over, with what it asked for and what it took."""

from __future__ import annotations

import structlog

from actors.gateway.requests.refusals import STATUS_BY_CODE
from actors.gateway.requests.request import Request
from actors.gateway.requests.work_done import work_of
from messages.outcomes import EndReason

_CANCELLED_STATUS = 499


class AccessLog:
    """Writes lines at level info. `is_on`: False writes nothing."""

    def __init__(self, model_name: str, *, is_on: bool) -> None:
        self._is_on, self._model_name = is_on, model_name
        self._log = structlog.get_logger()

    def ended(self, request: Request, ending: EndReason) -> None:
        """A request is over. `ending`: the most serious one of its sequences."""
        if not self._is_on:
            return
        spec, began_s = request.spec, request.began_s
        first_token_s = request.first_token_s - began_s if request.first_token_s else None
        work = work_of(request)
        self._log.info(
            "request",
            **spec.log_fields,
            model=self._model_name,
            api=spec.api,
            status=_status_of(request),
            ending=ending,
            prompt_tokens=sum(request.n_prompt),
            output_tokens=request.n_generated,
            queue_ms=_ms(work and work.queue_s),
            prefill_ms=_ms(work and work.prefill_s),
            decode_ms=_ms(work and work.decode_s),
            first_token_ms=_ms(first_token_s),
            total_ms=_ms(request.ended_s - began_s),
        )


def _status_of(request: Request) -> int:
    """The HTTP status of a whole answer. A stream has begun with 200, and says in an event that it has failed."""
    for sequence in request.sequences:
        ended = sequence.ended
        if ended is not None and ended.is_failure:
            return STATUS_BY_CODE[ended.code or "internal"]
    is_cancelled = any(one.ended is not None and one.ended.reason == "cancelled" for one in request.sequences)
    return _CANCELLED_STATUS if is_cancelled else 200


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
