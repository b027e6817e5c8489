"""Compares what a scheduler holds with what this gateway believes that it holds, about once a second.

    the scheduler tells                      the gateway knows better                     so
    ---------------------------------------  -------------------------------------------  ----------------------------------
    an attempt, with more tokens than here   every message until now has been handled     tokens are lost: submit again
    not an attempt, but newer ones           its submission has come before those         it or its ending is lost: submit again
    not an attempt, for the second time      it was submitted 2 s before that was told    it is lost: submit again
    an attempt that is closed here                                                        the Cancel is lost: cancel again
    an attempt that is not confirmed                                                      the Taken is lost: it is taken

Links lose nothing between living processes; this notices what a defect or a full buffer has lost.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.dispatch.routing import AttemptBook
from actors.gateway.requests.request import GrowingSequence
from messages.generation.sequences import Cancel, Holding

_LATE_S = 2.0  # a link may need so long for a submission, so an inventory that lacks a newer attempt proves nothing


class Holdings:
    """Compares the attempts in `book` with what schedulers report. `submit_again` closes the attempt of a sequence and
    submits it again, which counts as a loss: a message that no scheduler can read is not sent for ever."""

    def __init__(self, book: AttemptBook, post: Post, submit_again: Callable[[GrowingSequence], None]) -> None:
        self._book, self._post, self._submit_again = book, post, submit_again
        self._marks: dict[str, tuple[float, int]] = {}  # by scheduler: a time, and the newest attempt of that time
        self._log = structlog.get_logger()
        self.n_lost = 0  # attempts

    def compare(self, scheduler: str, holding: Holding) -> None:
        """Handle the report of a living scheduler, after all of its earlier messages."""
        told = dict(zip(holding.attempts.tolist(), holding.told.tolist(), strict=True))
        surely_heard = max(int(holding.newest), self._newest_late(scheduler, holding.made_s))
        for sequence in self._book.at(scheduler):
            n_told = told.pop(sequence.attempt, None)
            if n_told is not None and not sequence.is_taken:
                sequence.is_taken = True
                sequence.request.wake()
            never_came = n_told is None and sequence.attempt <= surely_heard
            lacks_tokens = n_told is not None and n_told > len(sequence.ids)
            if never_came or lacks_tokens:
                self.n_lost += 1
                fields = sequence.spec.log_fields
                self._log.warning(
                    "messages between gateway and scheduler were lost: sequence submitted again",
                    scheduler=scheduler,
                    attempt=sequence.attempt,
                    told=n_told,
                    **fields,
                )
                self._submit_again(sequence)
        for attempt in told:
            send_now(self._post, scheduler, Cancel(attempt=attempt, why="replaced"))

    def _newest_late(self, scheduler: str, made_s: float) -> int:
        """The newest attempt of a time at least `_LATE_S` before an inventory was made; 0 if it is not known. When it is read
        means nothing: it may have waited in the inbox of a gateway that was paused, or has more mail than it can handle."""
        now_s = self._post.now_s()
        marked_s, newest = self._marks.get(scheduler, (now_s, 0))
        is_late = (made_s or now_s) - marked_s >= _LATE_S
        if is_late or scheduler not in self._marks:
            self._marks[scheduler] = (now_s, self._book.newest)
        return newest if is_late else 0
