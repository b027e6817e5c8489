"""The log of refusals: one line for each request that is refused, with its id, tenant, status, code and field. What the client
is told beside these is not in it, because that may hold parts of a prompt.

A flood of them fills no disk: of those within a second the first ones get a line, and one line counts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog
from prometheus_client import Counter

from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from messages.wire.trace_context import TraceContext

LINES_PER_S = 10
_WINDOW_S = 1.0
NO_CALLER = b""
_MOST_CHARACTERS = 120  # of a text that a client has chosen
_NO_HEADERS: Mapping[str, str] = {}


class CallTrace(msgspec.Struct, frozen=True):
    """What is known of a call for its trace. `trace_id`, `context`: of its client, or of the request that it was to be; empty
    without one. `began_s`: by the monotonic clock; 0: at its end."""

    trace_id: bytes = b""
    context: TraceContext | None = None
    began_s: float = 0.0


class NotedRefusal(msgspec.Struct, frozen=True):
    """A refusal with what is known of its call, for a trace."""

    refusal: Refusal
    path: str
    request: str
    x_request_id: str
    tenant: str
    call: CallTrace


NO_CALL = CallTrace()


class RefusalLog:
    """Writes lines at level info. `counter`: of refusals by code. `later`: calls a function after so many seconds."""

    def __init__(
        self, settings: GatewaySettings, counter: Counter, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._is_on, self._counter, self._later = settings.access_log, counter, later
        self._log = structlog.get_logger()
        self._n_in_window = 0
        self.tenant_of: Callable[[bytes], str] = lambda caller: ""  # by the digest of the caller; "": there are none
        # gives headers for the answer of a refused call; None: traces are off
        self.trace: Callable[[NotedRefusal], Mapping[str, str]] | None = None

    def note(
        self,
        refusal: Refusal,
        path: str = "",
        request: str = "",
        x_request_id: str = "",
        caller: bytes = NO_CALLER,
        call: CallTrace = NO_CALL,
    ) -> Mapping[str, str]:
        """A request was refused. `path`: where it was sent to, "zeromq" for ZeroMQ. `request`: the id that its client has
        given, or that its answer shows; "" if it was refused before anything of it was read. `caller`: the digest of who
        has shown an API key. `call`: what else is known, for a trace. Returns headers for its answer: those of its trace."""
        self._count(refusal, path, request, x_request_id, caller)
        if self.trace is None:
            return _NO_HEADERS
        tenant = self.tenant_of(caller) if caller else ""
        return self.trace(NotedRefusal(refusal, path, request, x_request_id, tenant, call))

    def withdrawn(self, request: Request, refusal: Refusal) -> None:
        """A request could not be recorded, which refuses it after its trace has begun."""
        spec = request.spec
        caller = spec.terms.caller
        self._count(refusal, spec.api, spec.request, spec.correlation_id, caller)
        if self.trace is not None and spec.trace is not None and spec.trace.span_id:
            texts = spec.api, spec.request, spec.correlation_id, self.tenant_of(caller) if caller else ""
            self.trace(NotedRefusal(refusal, *texts, CallTrace(spec.terms.trace_id, spec.trace, request.began_s)))

    def _count(self, refusal: Refusal, path: str, request: str, x_request_id: str, caller: bytes) -> None:
        """Count a refusal, and write its line unless there are too many."""
        self._counter.labels(refusal.code).inc()
        if not self._is_on:
            return
        self._n_in_window += 1
        if self._n_in_window == 1:
            self._later(_WINDOW_S, self.end_window)
        if self._n_in_window <= LINES_PER_S:
            texts = {"request": request, "x_request_id": x_request_id, "path": path}
            texts["tenant"] = self.tenant_of(caller) if caller else ""
            shown = {name: _shown(text) for name, text in texts.items() if text}
            code, field = refusal.fine_code or refusal.code, {"field": _shown(refusal.field)} if refusal.field else {}
            self._log.info("refused", **shown, status=refusal.status, code=code, **field)

    def end_window(self) -> None:
        """A second has passed, or the gateway ends: write one line with the number of refusals that had none."""
        n_unlogged, self._n_in_window = self._n_in_window - LINES_PER_S, 0
        if n_unlogged > 0:
            self._log.info("refused: further requests in the same second", requests=n_unlogged)


def _shown(text: str) -> str:
    """A text of a client in a line: printable ASCII, and cut."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:_MOST_CHARACTERS])
