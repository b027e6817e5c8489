"""The access log: one line for each request that is over, with what it asked for and what it took.

Lines are made and written together, ten times a second: code and data that only lines need are in the processor's caches after
the first one, the fields that all have in common are made once for all of them, and the logging library renders none of them. A
kill loses the lines of the last tenth of a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.refusals import STATUS_BY_CODE
from actors.gateway.requests.request import Request
from actors.gateway.requests.work_done import work_of
from actors.gateway.settings import GatewaySettings
from messages.log_file.log_tee import LogTee
from messages.outcomes import EndReason

_CANCELLED_STATUS = 499
_BATCH_S = 0.1
_EVENT = "request"
Fields = dict[str, Any]


class AccessLog:
    """Writes lines at level info. `later`: calls a function after so many seconds."""

    def __init__(
        self, settings: GatewaySettings, models: ServedModels, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._models, self._later = models, later
        self._log = structlog.get_logger().bind()
        self._is_on = settings.access_log and self._log.is_enabled_for(logging.INFO)
        self._waiting: list[Fields | tuple[Request, EndReason]] = []
        self.tenant_of: Callable[[bytes], str] = lambda caller: ""  # by the digest of the caller; "": there are none

    def ended(self, request: Request, ending: EndReason) -> None:
        """A request is over, and changes no more. `ending`: the most serious one of its sequences."""
        if self._is_on:
            self._note((request, ending))

    def embedded(self, names: Mapping[str, str], model_name: str, n_texts: int, n_tokens: int, total_s: float) -> None:
        """Vectors were computed, or their client has left before: then `n_tokens` is 0. `names`: its id, and its API."""
        if not self._is_on:
            return
        status, ending = (200, "stop") if n_tokens else (_CANCELLED_STATUS, "cancelled")
        fields = {**names, "model": model_name, "status": status, "ending": ending, "texts": n_texts}
        self._note({**fields, "prompt_tokens": n_tokens, "output_tokens": 0, "total_ms": _ms(total_s)})

    def _note(self, line: Fields | tuple[Request, EndReason]) -> None:
        self._waiting.append(line)
        if len(self._waiting) == 1:
            self._later(_BATCH_S, self.write)

    def write(self) -> None:
        """Write the lines that wait."""
        waiting = [line if isinstance(line, dict) else self._fields_of(*line) for line in self._waiting]
        self._waiting = []
        config = structlog.get_config()
        *before, renderer = config["processors"]
        is_json = isinstance(renderer, structlog.processors.JSONRenderer)
        if not waiting or not (is_json or isinstance(renderer, structlog.dev.ConsoleRenderer)):  # the latter: a test listens
            for fields in waiting:
                self._log.info(_EVENT, **fields)
            return
        tee = next((processor for processor in before if isinstance(processor, LogTee)), None)
        common: Any = {"event": _EVENT}
        for processor in before:
            common = common if processor is tee else processor(None, "info", common)
        in_json = [msgspec.json.encode({**fields, **common}) for fields in waiting] if is_json or tee is not None else []
        if tee is not None:
            tee.write(*in_json)
            if not tee.shows("info"):
                return
        if is_json:
            lines = [line.decode() for line in in_json]
        else:
            beginning = str(renderer(None, "info", common))
            lines = [f"{beginning} {_shown(fields)}" for fields in waiting]
        config["logger_factory"]().info("\n".join(lines))

    def _fields_of(self, request: Request, ending: EndReason) -> Fields:
        fields = _fields_of(request, ending, self._models.at(request.spec.model).name)
        tenant = self.tenant_of(request.spec.terms.caller)
        return {**fields, "tenant": tenant} if tenant else fields


def _fields_of(request: Request, ending: EndReason, model_name: str) -> Fields:
    spec, began_s, work = request.spec, request.began_s, work_of(request)
    first_token_s = request.first_token_s - began_s if request.first_token_s and request.is_first_token_timed else None
    fields = {
        **spec.log_fields,
        "model": model_name,
        "api": spec.api,
        "status": _status_of(request),
        "ending": ending,
        "prompt_tokens": sum(request.n_prompt),
        "output_tokens": request.n_generated,
        "queue_ms": _ms(work and work.queue_s),
        "prefill_ms": _ms(work and work.prefill_s),
        "decode_ms": _ms(work and work.decode_s),
        "first_token_ms": _ms(first_token_s),
        "total_ms": _ms(request.ended_s - began_s),
    }
    if spec.cache_status:
        fields["cache"] = spec.cache_status
    if spec.fallback:
        fields["is_fallback"] = True
    if spec.similarity:
        fields["similarity"] = spec.shown_similarity
    return fields


def _shown(fields: Fields) -> str:
    """Fields in the form of the console; a text with a blank is quoted."""
    return " ".join([f"{n}={v!r}" if isinstance(v, str) and " " in v else f"{n}={v}" for n, v in fields.items()])


def _status_of(request: Request) -> int:
    """The HTTP status of a whole answer. A stream has begun with 200, and says in an event that it has failed."""
    for sequence in request.sequences:
        ended = sequence.ended
        if ended is not None and ended.is_failure:
            return STATUS_BY_CODE[ended.code or "internal"]
    is_cancelled = any(one.ended is not None and one.ended.reason == "cancelled" for one in request.sequences)
    return _CANCELLED_STATUS if is_cancelled else 200


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6) / 1e3  # `round` to digits takes twice as long
