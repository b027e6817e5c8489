"""Records the tokens and endings of a step in the journal, then makes them visible to clients.

Nothing becomes visible before it is in the journal (or in the journal's memory while the disk refuses writes). Rows of requests
that are not resumable skip the journal, unless earlier rows are still queued in it, so that order is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.admission_gate import AdmissionGate
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.metrics import GatewayMetrics
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.settings import GatewaySettings
from messages.generation import sequences

Ack = tuple[str, int, int]  # the scheduler's name, its incarnation, the number of its Tokens message


class StepPublisher:
    """Records and publishes. `on_over(request, now_s)` is called when the last ending of a request has become visible."""

    def __init__(
        self,
        settings: GatewaySettings,
        post: Post,
        journal: Journal,
        metrics: GatewayMetrics,
        gate: AdmissionGate,
        on_over: Callable[[Request, float], None],
    ) -> None:
        self._settings, self._post, self._journal, self._metrics, self._gate = settings, post, journal, metrics, gate
        self._on_over = on_over
        self._newest_ack: dict[str, Ack] = {}  # by scheduler: its newest message that is recorded
        self._in_journal: deque[StepRows] = deque()  # rows that the journal has not confirmed, in order
        self._touched: dict[int, Request] = {}  # by number: those of which more is visible than their watchers know
        journal.on_answered = self._wake_touched

    def record(self, rows: StepRows, ack: Ack | None) -> None:
        """Record rows and endings, then publish them. `ack`: the message to acknowledge to its scheduler afterwards."""
        for sequence in rows.endings:
            if sequence.spec.tells_times:
                self._note_times(sequence)
        record = rows.record()
        if not record and rows.are_admitted and (not self._in_journal or rows.are_at_once):
            self._publish(rows, ack)
            self._wake_touched()
            return
        self._in_journal.append(rows)
        self._journal.step(record, lambda: self._on_recorded(rows, ack))

    def _note_times(self, sequence: GrowingSequence) -> None:
        """Set the times that a stream shows. They are recorded with the ending, so that every process shows the same."""
        request, now_s = sequence.request, self._post.now_s()
        first_s = max(request.first_token_s - request.began_s, 0.0) if request.first_token_s else 0.0
        sequence.note_times(first_s, max(now_s - request.began_s, 0.0))

    def ping(self, request: Request) -> None:
        """Put a ping into the streams of a silent request. It is recorded before it is shown, so that it can be repeated; while
        the disk refuses writes there are none, because no later process would know where they were.
        """
        if request.takes_pings and request.is_recorded and not (request.is_over or request.is_ping_coming):
            request.is_ping_coming = True
            rows = StepRows()
            rows.pings.append(request)
            if not request.spec.is_resumable:
                self.record(rows, None)
                return
            self._in_journal.append(rows)
            self._journal.step(rows.record(), lambda: self._on_recorded(rows, None), lambda: self._drop_ping(rows, request))

    def coming_items(self, request: Request) -> list[int]:
        """The items of a request that are on their way into the journal, in the order in which they will become visible."""
        return [item for rows in self._in_journal for item in rows.items_of(request)]

    def close(self, sequence: GrowingSequence) -> None:
        """Make the ending of a sequence visible."""
        sequence.publish(sequence.n_visible, True)
        sequence.request.n_open -= 1
        self._gate.ended(sequence)

    def _drop_ping(self, rows: StepRows, request: Request) -> None:
        self._in_journal.remove(rows)
        request.is_ping_coming = False

    def _on_recorded(self, rows: StepRows, ack: Ack | None) -> None:
        self._in_journal.popleft()
        self._publish(rows, ack)

    def _publish(self, rows: StepRows, ack: Ack | None) -> None:
        """Make rows visible. The watchers of requests that go on are told by `_wake_touched`, once for all steps of a commit:
        a stream that has several tokens then takes hardly longer than one that has one."""
        now_s, touched, over = self._post.now_s(), self._touched, dict[int, Request]()
        gaps: dict[tuple[float, int], int] = {}  # by when the last tokens were visible, and the number of new ones
        for sequence, first, stop in rows.rows:
            if sequence.is_end_visible:  # the request has been withdrawn since
                continue
            if sequence.queued_tokens:
                self._gate.queued.started(sequence)
            request = sequence.request
            if last_s := sequence.last_visible_s:
                gap = last_s, stop - first
                gaps[gap] = gaps.get(gap, 0) + 1
            elif not request.first_token_s:
                self._metrics.observe_first(request, now_s)
                request.first_token_s = now_s
            sequence.last_visible_s = now_s
            sequence.publish(stop, False)
            touched[request.number] = request
        for (last_s, n_tokens), n_rows in gaps.items():
            self._metrics.observe_gaps(now_s - last_s, n_tokens, n_rows)
        for request in rows.pings:
            if not request.is_over:
                request.show_ping()
                touched[request.number] = request
        for sequence in rows.endings:
            if not sequence.is_end_visible:
                self.close(sequence)
                touched[sequence.request.number] = over[sequence.request.number] = sequence.request
        self._metrics.output_tokens.inc(rows.n_tokens)
        if ack is not None:
            self._newest_ack[ack[0]] = ack
            self._acknowledge(*ack)
        for number, request in over.items():
            if request.is_over:
                del touched[number]
                _wake(request)
                self._on_over(request, now_s)

    def _wake_touched(self) -> None:
        """Tell the watchers of all requests of which more is visible."""
        touched, self._touched = self._touched, {}
        for request in touched.values():
            _wake(request)

    def _acknowledge(self, sender: str, incarnation: int, number: int) -> None:
        if number % self._settings.ack_messages == 0:
            self._send_ack(sender, incarnation, number)

    def acknowledge_again(self, sender: str) -> None:
        """Acknowledge the newest recorded message of a scheduler, even if that was acknowledged before."""
        if (newest := self._newest_ack.get(sender)) is not None:
            self._send_ack(*newest)

    def _send_ack(self, sender: str, incarnation: int, number: int) -> None:
        if self._post.incarnation_of(sender) != incarnation:
            return
        if not send_now(self._post, sender, sequences.Ack(up_to=number)):
            structlog.get_logger().warning("acknowledgement not sent", to=sender, number=number)


def _wake(request: Request) -> None:
    """Tell the watchers of a request. An exception of theirs is reported, and the other requests are told all the same."""
    try:
        request.wake()
    except Exception as error:
        message = f"a reader of the request {request.spec.request} has raised an exception"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
