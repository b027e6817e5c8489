"""A server in front of another one, which passes every request on and keeps the JSON bodies that clients send."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.clients.forced_call import ForcedCall

KEPT_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")  # those that may change what a body means
_NOT_PASSED_ON = ("connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding", "host")
_LIMIT_S = 600.0
_PART_BYTES = 1 << 16


class Recorder:
    """The requests that were served: path, headers that matter and body, one of each form. `url`: where clients send them.
    One that is refused is not kept: some clients ask so what a server can do, and then send another request."""

    def __init__(self, target: str, forced: ForcedCall | None = None) -> None:
        """`target`: the address of the server behind it. `forced`: changes what is passed on, not what is kept."""
        self.requests: list[dict[str, Any]] = []
        self._forms: set[str] = set()
        self._target, self._forced, self._lock = urlsplit(target).netloc, forced, threading.Lock()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                recorder._pass_on(self, b"")

            def do_HEAD(self) -> None:
                recorder._pass_on(self, b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                passed_on, kept = recorder._kept(self, body)
                recorder._pass_on(self, passed_on, kept)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  (the name in the base class)
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def _kept(self, call: BaseHTTPRequestHandler, raw: bytes) -> tuple[bytes, dict[str, Any] | None]:
        """Keep a body of a new form; (what is passed on of it, what is kept or None)."""
        try:
            body = json.loads(raw)
        except ValueError:
            return raw, None
        kept: dict[str, Any] | None = None
        headers = {name: call.headers[name] for name in KEPT_HEADERS if name in call.headers}
        form = json.dumps([call.path, form_of(body)])
        with self._lock:
            if form not in self._forms:
                self._forms.add(form)
                kept = {"path": call.path, "headers": headers, "body": body}
                self.requests.append(kept)
        return raw if self._forced is None else json.dumps(self._forced.put_into(call.path, body)).encode(), kept

    def _pass_on(self, call: BaseHTTPRequestHandler, body: bytes, kept: dict[str, Any] | None = None) -> None:
        link = http.client.HTTPConnection(self._target, timeout=_LIMIT_S)
        try:
            headers = {name: value for name, value in call.headers.items() if name.lower() not in _NOT_PASSED_ON}
            link.request(call.command, call.path, body or None, headers)
            answer = link.getresponse()
            if kept is not None and answer.status >= HTTPStatus.BAD_REQUEST:
                with self._lock:
                    self.requests.remove(kept)
            call.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _NOT_PASSED_ON:
                    call.send_header(name, value)
            call.send_header("Connection", "close")  # which ends the body too
            call.end_headers()
            while part := answer.read1(_PART_BYTES):
                call.wfile.write(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has left
        finally:
            link.close()
            call.close_connection = True


def form_of(value: Any) -> Any:
    """What a JSON value looks like: objects by their keys, lists by the forms of their items, texts that name a kind as they
    are, everything else by its type."""
    if isinstance(value, dict):
        return {key: inner if key in ("type", "role") else form_of(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return sorted({json.dumps(form_of(item), sort_keys=True) for item in value})
    return type(value).__name__


@contextmanager
def recording(target: str, forced: ForcedCall | None = None) -> Iterator[Recorder]:
    """A recorder in front of the server at `target`, until the block ends. `forced`: see `Recorder`."""
    recorder = Recorder(target, forced)
    thread = threading.Thread(target=recorder.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.server.shutdown()
        recorder.server.server_close()
        thread.join()
