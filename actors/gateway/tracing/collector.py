"""One connection to a collector: sends a body by OTLP over HTTP, and says what became of it. Blocks; for a thread."""

from __future__ import annotations

import gzip
import http.client
import ssl
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

import msgspec

from actors.gateway.tracing.export_settings import ExportSettings

_RETRYABLE = (408, 429, 502, 503, 504)
_MOST_ANSWER_BYTES = 65_536
_TYPES = {"http/json": "application/json", "http/protobuf": "application/x-protobuf"}


class Outcome(Enum):
    """What a collector has made of a call."""

    TAKEN = auto()
    REFUSED = auto()  # for good
    LATER = auto()  # it is not there, or asks to be called again


@dataclass(frozen=True)
class Delivered:
    """The outcome of one call. `n_rejected`: spans that it does not take, though it took the call. `retry_s`: when to call
    again, as it wants it; 0: it says nothing."""

    outcome: Outcome
    why: str = ""
    n_rejected: int = 0
    retry_s: float = 0.0


class _PartialSuccess(msgspec.Struct, frozen=True, rename="camel"):
    rejected_spans: int | str = 0


class _ExportAnswer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess = _PartialSuccess()


class CollectorConnection:
    """A connection that is opened when it is needed, and kept open."""

    def __init__(self, settings: ExportSettings) -> None:
        """Raises: OSError when the file with certificates cannot be read."""
        self._settings, parts = settings, urlsplit(settings.url)
        self._path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        self._host, self._port = parts.hostname or "", parts.port
        self._context = None
        if parts.scheme == "https":
            self._context = ssl.create_default_context(cafile=settings.certificate or None)
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {"Content-Type": _TYPES[settings.protocol], **settings.headers}
        if settings.compression == "gzip":
            self._headers["Content-Encoding"] = "gzip"

    def send(self, json_body: bytes) -> Delivered:
        """Send spans, given in the JSON form."""
        body = json_body
        if self._settings.protocol == "http/protobuf":
            from actors.gateway.tracing.protobuf_form import protobuf_of  # a package of its own, only where it is asked for

            body = protobuf_of(json_body)
        if self._settings.compression == "gzip":
            body = gzip.compress(body, 1)
        try:
            return self._call(body)
        except (OSError, http.client.HTTPException, ValueError) as error:  # the last one: what this thread must survive
            self.close()
            return Delivered(Outcome.LATER, f"{type(error).__name__}: {error}")

    def _call(self, body: bytes) -> Delivered:
        if self._connection is None:
            self._connection = self._connected()
        self._connection.request("POST", self._path, body, self._headers)
        response = self._connection.getresponse()
        answer = response.read(_MOST_ANSWER_BYTES)
        if response.will_close or not response.isclosed():
            self.close()
        if 200 <= response.status < 300:
            return Delivered(Outcome.TAKEN, n_rejected=rejected_spans(answer, response.headers.get("content-type", "")))
        outcome = Outcome.LATER if response.status in _RETRYABLE else Outcome.REFUSED
        wait = response.headers.get("retry-after", "")
        return Delivered(outcome, f"status {response.status}", retry_s=float(wait) if wait.isdecimal() else 0.0)

    def _connected(self) -> http.client.HTTPConnection:
        timeout_s = self._settings.timeout_s
        if self._context is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rejected_spans(answer: bytes, content_type: str) -> int:
    """How many spans a collector says that it has not taken; only answers in JSON are read."""
    if "json" not in content_type or not answer:
        return 0
    try:
        return max(0, int(msgspec.json.decode(answer, type=_ExportAnswer).partial_success.rejected_spans))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return 0
