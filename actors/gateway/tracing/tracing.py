"""The traces of one gateway: decides which requests are traced, and hands what is known of those that are over to the spool.

    request manager --begin--> a trace id and a span id, recorded with the request
    attempt book, failover ---> notes of lost attempts
    finished requests --keep--> record --> spool (a file) --> exporter (a thread): spans --> collector
    refused calls, embeddings --> record --^

Without traces none of this exists, and none of these calls is made.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.embeddings.embeddings import EndedEmbedding
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.requests.refusal_log import CallTrace, NotedRefusal
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.requests.work_done import ending_of
from actors.gateway.settings import GatewaySettings, TracesSettings
from actors.gateway.tracing.attempts import AttemptLog, LossCause, is_traced
from actors.gateway.tracing.collector import CollectorConnection
from actors.gateway.tracing.ended_call import EmbeddingsCall, EndedCall, RefusedCall, encode_call
from actors.gateway.tracing.ended_request import encode_ended, ended_request
from actors.gateway.tracing.export_settings import ExportSettings, export_settings
from actors.gateway.tracing.exporter import SPANS, Exporter
from actors.gateway.tracing.otlp import RequestBody
from actors.gateway.tracing.spool import Spool
from actors.gateway.tracing.trace_metrics import DropReason, TraceMetrics
from messages.generation.replica_state import ReplicaCondition
from messages.ids import replica_of
from messages.release import release_version
from messages.wire.trace_context import SPAN_ID_BYTES, TRACE_ID_BYTES, TraceContext, traceparent_of

_STOP_S = 1.0  # a gateway that ends waits so long for the collector; what is left stays in its files


class Tracing:
    """Attached to one request manager, before that takes over the requests of an earlier incarnation."""

    def __init__(
        self, gateway: str, post: Post, manager: RequestManager, export: ExportSettings, spool: Spool, exporter: Exporter,
        metrics: TraceMetrics,
    ) -> None:  # fmt: skip
        self._gateway, self._post, self._manager = gateway, post, manager
        self._sampler, self._delay_s = export.sampler, export.delay_s
        self._most_waiting_calls = export.most_waiting // SPANS // 2  # a flood of refused calls leaves room for requests
        self.spool, self.exporter, self._metrics = spool, exporter, metrics
        self.attempts = AttemptLog(post.now_s, self._cause_of)
        self._timer: Timer | None = None
        self._random_bytes = random.Random(os.urandom(32)).randbytes  # a third of the time of a call of the system

    def attach(self) -> None:
        """Hear of all requests from now on, and export what earlier incarnations have left."""
        manager, book = self._manager, self._manager.dispatcher.book
        was_closing, was_over = book.on_close, manager.on_over
        book.on_close = lambda sequence: (was_closing(sequence), self.attempts.closing(sequence))[0]
        manager.on_over = lambda request: (was_over(request), self._withdrawn(request))[0]
        manager.begin_trace = self.begin
        manager.dispatcher.failover.on_condition = self._on_condition
        manager.finished.on_keep = self.keep
        manager.refusals.trace = self.refused
        self.spool.on_complete = self.exporter.wake
        self.exporter.start()
        self._tick()

    def begin(self, spec: RequestSpec) -> RequestSpec:
        """A new request, with the ids of its trace if it is traced."""
        client, trace_id = spec.trace, spec.terms.trace_id or self._random_bytes(TRACE_ID_BYTES)
        if not self._sampler.takes(trace_id, client):
            return spec
        client = client or TraceContext()
        trace = msgspec.structs.replace(client, span_id=self._random_bytes(SPAN_ID_BYTES))
        terms = spec.terms if spec.terms.trace_id else msgspec.structs.replace(spec.terms, trace_id=trace_id)
        return msgspec.structs.replace(spec, trace=trace, terms=terms)

    def keep(self, request: Request) -> None:
        """A request is over, and the journal has not been told yet: what its spans need is written down before."""
        if not is_traced(request):
            return
        (closed, outages), spec, manager = self.attempts.take(request), request.spec, self._manager
        assert spec.trace is not None, "it is traced"
        span_id = spec.trace.span_id
        if span_id in self.spool.known:  # a dead gateway has written it, and could not tell the journal
            return
        record = ended_request(
            request,
            ending_of(request),
            closed,
            outages,
            gateway=self._gateway,
            model=manager.models.at(spec.model).name,
            tenant=manager.access_log.tenant_of(spec.terms.caller),
            offset_s=self._offset_s,
            taken_over_s=self.attempts.began_s,
        )
        if not self.spool.add(span_id, encode_ended(record)):
            self._metrics.dropped(DropReason.FULL, 1)

    def refused(self, noted: NotedRefusal) -> Mapping[str, str]:
        """A call was refused. Returns the headers of its trace; none if it is not traced."""
        refusal, code = noted.refusal, noted.refusal.fine_code or noted.refusal.code
        what = RefusedCall(noted.path, refusal.status, code, refusal.limit, refusal.field)
        return self._call(noted.call, noted.call.began_s, (noted.request, noted.x_request_id, noted.tenant), what)

    def embedded(self, one: EndedEmbedding) -> Mapping[str, str]:
        """A call for vectors is over. Returns the headers of its trace; none if it is not traced."""
        call, times, names = one.spec.call, one.times, one.spec.names
        sent_s = times.sent_s + self._offset_s if times.sent_s else 0.0
        what = EmbeddingsCall(one.model, names.get("api", ""), one.n_texts, one.n_tokens, sent_s, times.n_sent)
        named = names.get("request", ""), names.get("x_request_id", ""), one.tenant
        return self._call(call, call.began_s or times.began_s, named, what)

    @property
    def _offset_s(self) -> float:
        """Unix time minus the monotonic clock."""
        return self._post.wall_s() - self._post.now_s()

    def _call(
        self, call: CallTrace, began_s: float, named: tuple[str, str, str], what: RefusedCall | EmbeddingsCall
    ) -> Mapping[str, str]:
        """Keep the record of a call that is over, if it is traced. `named`: its id, its client's and its tenant. The context
        has the id of a span if that was begun before."""
        client, trace_id = call.context, call.trace_id or self._random_bytes(TRACE_ID_BYTES)
        trace = client or TraceContext()
        if not trace.span_id:
            if not self._sampler.takes(trace_id, client):
                return {}
            trace = msgspec.structs.replace(trace, span_id=self._random_bytes(SPAN_ID_BYTES))
        ended_s, offset_s = self._post.now_s(), self._offset_s
        times = (began_s or ended_s) + offset_s, ended_s + offset_s
        record = EndedCall(trace_id, trace, *times, self._gateway, *named, what)
        has_room = self.spool.n_waiting < self._most_waiting_calls
        if not (has_room and self.spool.add(trace.span_id, encode_call(record))):
            self._metrics.dropped(DropReason.FULL, 1)
        headers = {"traceparent": traceparent_of(trace_id, trace.span_id)}
        return {**headers, "tracestate": trace.state} if trace.state else headers

    def leave(self) -> None:
        """Hear no more of requests. What waits for the collector is in files."""
        if self._timer is not None:
            self._timer.cancel()
        self.spool.seal()

    async def stop(self) -> None:
        """The gateway ends: export what is left, if that takes no longer than a second."""
        self.leave()
        await asyncio.get_running_loop().run_in_executor(None, self.exporter.stop, _STOP_S)

    def _withdrawn(self, request: Request) -> None:
        """A request that could not be recorded was never accepted, and has no trace."""
        if request.is_withdrawn:
            self.attempts.take(request)

    def _on_condition(self, scheduler: str, condition: ReplicaCondition) -> None:
        if condition is ReplicaCondition.UP:
            self.attempts.gang_is_back(scheduler)
        else:
            self.attempts.gang_is_gone(scheduler, self._manager.dispatcher.book.at(scheduler))

    def _cause_of(self, scheduler: str) -> LossCause:
        if self._post.incarnation_of(scheduler) < 0:
            return LossCause.SCHEDULER
        condition = self._manager.dispatcher.failover.replicas.condition(scheduler)
        return LossCause.MOVED if condition is ReplicaCondition.UP else LossCause.GANG

    def _tick(self) -> None:
        self.spool.seal()
        self._metrics.waiting.set(self.spool.n_waiting)
        self._timer = self._post.later(self._delay_s, self._tick)


def attached(
    settings: GatewaySettings,
    traces: TracesSettings,
    name: str,
    incarnation: int,
    post: Post,
    manager: RequestManager,
    registry: CollectorRegistry,
) -> Tracing | None:
    """The traces of a gateway, attached. None without a folder that can be written: the gateway serves without traces.

    Raises: ConfigError.
    """
    export = export_settings(traces, os.environ)
    try:
        spool = _spool(traces, export, replica_of(name), incarnation, settings.gateways)
        send = CollectorConnection(export).send
    except OSError as error:
        structlog.get_logger().error("requests are not traced", error=str(error))
        return None
    metrics, version = TraceMetrics(registry), release_version()
    resource = {"service.version": version, "service.instance.id": name, "telemetry.sdk.language": "python", **export.resource}
    exporter = Exporter(spool, send, RequestBody(resource, version), metrics, export.url)
    tracing = Tracing(name, post, manager, export, spool, exporter, metrics)
    tracing.attach()
    return tracing


def _spool(traces: TracesSettings, export: ExportSettings, gateway: int, incarnation: int, n_gateways: int) -> Spool:
    most_waiting, most_in_file = max(export.most_waiting // SPANS, 1), max(export.most_at_once // SPANS, 1)
    spool = Spool(Path(traces.folder), gateway, incarnation, most_waiting, most_in_file)
    spool.find(n_gateways)
    return spool
