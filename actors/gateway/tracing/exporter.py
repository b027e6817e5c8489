"""The thread that makes spans of the records in complete files, and brings them to the collector.

    a file is complete --> POST --taken, refused--> deleted
                            |  ^
                            +--+ not there, or busy: again after 1, 2, 4 ... 30 s, for 10 minutes at most

It works through the files in order, one call at a time. It never holds back the event loop: while the collector is not there,
files wait up to a bound, and the traces of later requests are dropped and counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import structlog

from actors.gateway.tracing.collector import Delivered, Outcome
from actors.gateway.tracing.ended_call import call_spans, decode_call, is_call
from actors.gateway.tracing.ended_request import decode_ended
from actors.gateway.tracing.otlp import RequestBody, encode_spans
from actors.gateway.tracing.request_spans import request_spans
from actors.gateway.tracing.spool import Spool, SpoolFile
from actors.gateway.tracing.trace_metrics import DropReason, TraceMetrics

SPANS = 4  # of most requests: what OpenTelemetry's variables count in spans is bounded in requests
_RECORDS_A_TURN = 16
FIRST_WAIT_S, LONGEST_WAIT_S, GIVE_UP_S = 1.0, 30.0, 600.0
Send = Callable[[bytes], Delivered]


class Retries:
    """When a file is tried again, and when it is given up. Pure; times are those of the caller's clock."""

    def __init__(self) -> None:
        self._wait_s, self._since_s = FIRST_WAIT_S, -1.0

    def failed(self, now_s: float, wanted_s: float) -> float:
        """A call has failed; returns the seconds until the next one, negative if there should be none. `wanted_s`: what the
        collector asks for; 0: nothing."""
        if self._since_s < 0.0:
            self._since_s = now_s
        if now_s - self._since_s >= GIVE_UP_S:
            self.succeeded()
            return -1.0
        wait_s = max(self._wait_s, min(wanted_s, LONGEST_WAIT_S))
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        return wait_s

    def succeeded(self) -> None:
        """The next failure is the first one."""
        self._wait_s, self._since_s = FIRST_WAIT_S, -1.0


class Exporter:
    """Exports the complete files of a spool. `wake` says that there are more of them."""

    def __init__(self, spool: Spool, send: Send, body: RequestBody, metrics: TraceMetrics, url: str) -> None:
        self._spool, self._send, self._body, self._metrics = spool, send, body, metrics
        self._log = structlog.get_logger().bind(collector=url)
        self._woken, self._retries = threading.Condition(), Retries()
        self._is_stopping = self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def wake(self) -> None:
        """Another file is complete."""
        with self._woken:
            self._woken.notify()

    def stop(self, patience_s: float) -> None:
        """Try what waits once more, and end; a call that is under way may take `patience_s`. What is left stays in files."""
        with self._woken:
            self._is_stopping = True
            self._woken.notify()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def abandon(self) -> None:
        """End at once, without another call."""
        self._send = lambda body: Delivered(Outcome.LATER, "abandoned")
        self.stop(0.0)

    def _run(self) -> None:
        while True:
            while self._spool.complete:
                wait_s = self._export(self._spool.complete[0])
                if wait_s > 0.0 and not self._wait(wait_s):
                    return
            if self._is_stopping:
                return
            with self._woken:
                if not self._spool.complete and not self._is_stopping:
                    self._woken.wait()

    def _wait(self, seconds: float) -> bool:
        """Wait for the next attempt, or until the end. Returns False at the end."""
        with self._woken:
            self._woken.wait_for(lambda: self._is_stopping, seconds)
            return not self._is_stopping

    def _export(self, file: SpoolFile) -> float:
        """Send one file; returns the seconds to wait before it is sent again, 0 if it is done."""
        try:
            records = [record for _, record in file.read()]
        except OSError as error:  # somebody has deleted it
            self._finish(file, DropReason.UNREADABLE, str(error))
            return 0.0
        if not records:
            self._spool.done(file)
            return 0.0
        found = self._send(self._body.of(self._encoded(records)))
        if found.outcome is Outcome.TAKEN:
            self._taken(file, found.n_rejected)
            return 0.0
        if found.outcome is Outcome.REFUSED:
            self._finish(file, DropReason.REFUSED, found.why)
            return 0.0
        wait_s = self._retries.failed(time.monotonic(), found.retry_s)
        if wait_s < 0.0:
            self._finish(file, DropReason.UNREACHABLE, found.why)
            return 0.0
        self._note_failure(f"the collector takes no spans: {found.why}")
        return wait_s

    def _encoded(self, records: list[bytes]) -> Iterator[bytes]:
        """The spans of each record. The event loop gets a turn after some of them."""
        for number, record in enumerate(records, 1):
            try:
                is_bare = is_call(record)
                yield encode_spans(call_spans(decode_call(record)) if is_bare else request_spans(decode_ended(record)))
            except ValueError as error:  # of another release
                self._log.warning("a trace is left out", error=str(error))
            if not number % _RECORDS_A_TURN:
                time.sleep(0)

    def _taken(self, file: SpoolFile, n_rejected: int) -> None:
        self._retries.succeeded()
        if self._is_failing:
            self._is_failing = False
            self._log.info("the collector takes spans again")
        n_refused = min(-(-n_rejected // SPANS), file.n_requests)
        self._metrics.exported.inc(file.n_requests - n_refused)
        if n_refused:
            self._metrics.dropped(DropReason.REFUSED, n_refused)
        self._spool.done(file)

    def _finish(self, file: SpoolFile, reason: DropReason, why: str) -> None:
        self._note_failure(f"traces are dropped: {why}")
        self._metrics.dropped(reason, file.n_requests)
        self._spool.done(file)

    def _note_failure(self, text: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._log.warning(text)
