"""A stand-in for a collector: an HTTP server that reads OTLP, as JSON and as protobuf, with the definitions of
opentelemetry-proto. What is no valid request of the protocol is a problem, and gets status 400."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.otlp.traces import SeenSpan, seen_span

DEADLINE_S = 120.0
_IDS = ("traceId", "spanId", "parentSpanId")


class SpanCollector:
    """`spans`: every span of every call, in the order of their arrival. `statuses`: what the next calls get instead of 200."""

    def __init__(self, port: int = 0) -> None:
        self._service: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        self._json: Any = pytest.importorskip("google.protobuf.json_format")
        self.spans: list[SeenSpan] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.problems: list[str] = []
        self.statuses: list[int] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def wait(self, condition: Callable[[], object]) -> None:
        """Until the condition is true. Raises: AssertionError after the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, f"{len(self.spans)} spans came"
            time.sleep(0.01)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """One call; returns its status."""
        self.headers.append(headers)
        if self.statuses:
            return self.statuses.pop(0)
        try:
            assert path == "/v1/traces", path
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = self._service.ExportTraceServiceRequest()
            if headers["content-type"] == "application/json":
                self._json.ParseDict(_with_base64(json.loads(body)), request)
            else:
                assert headers["content-type"] == "application/x-protobuf", headers
                request.ParseFromString(body)
            self._keep(self._json.MessageToDict(request))
        except Exception as error:
            self.problems.append(f"{type(error).__name__}: {error}")
            return 400
        return 200

    def _keep(self, request: dict[str, Any]) -> None:
        for resource in request["resourceSpans"]:
            self.resources.append(resource["resource"])
            for scope in resource["scopeSpans"]:
                self.spans += [seen_span(span) for span in scope["spans"]]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = collector.take(self.path, headers, body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        return Handler


def _with_base64(body: dict[str, Any]) -> dict[str, Any]:
    """A request in OTLP's JSON as protobuf's own JSON has it: ids in base64 instead of hexadecimal digits."""
    for resource in body["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for one in (span, *span.get("links", ())):
                    one.update({n: base64.b64encode(bytes.fromhex(one[n])).decode() for n in _IDS if n in one})
    return body


@contextmanager
def span_collector() -> Iterator[SpanCollector]:
    """A collector that is stopped at the end; it must have understood everything."""
    collector = SpanCollector()
    try:
        yield collector
    finally:
        collector.stop()
    assert not collector.problems


def by_trace(spans: list[SeenSpan]) -> dict[str, list[SeenSpan]]:
    """Spans by trace; one that came twice, because a process died before it could note that it had come, counts once."""
    found: dict[str, dict[str, SeenSpan]] = defaultdict(dict)
    for span in spans:
        found[span.trace_id].setdefault(span.span_id, span)
    return {trace: list(own.values()) for trace, own in found.items()}
