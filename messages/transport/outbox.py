"""The sender's side of one link: messages are kept until the receiver has handled them, and lost ones are sent again. Pure.

    acknowledged          sent                       last
    |-- kept; may be lost --|-- waits for credit ------|

Messages are numbered from 1. The receiver takes them in the order of their numbers only. It answers with the number up to
which it has handled them, and with the number that it wants next if one is missing. Then every message from that one on is
sent again (go-back-N, as in HDLC). So nothing is lost or repeated between two living processes, whatever happens to their
connection.
"""

from __future__ import annotations

from collections import deque

from messages.errors import MailboxFull
from messages.wire.envelope import LinkAnswer

WINDOW_MESSAGES = 1024
BACKLOG_MESSAGES = 16_384
BEAT_S = 0.5  # how often `beat` is to be called
_SILENT_BEATS, _MOST_SILENT_BEATS = 4, 128  # unanswered questions before the first new connection, and before the rarest

EncodedMessage = tuple[bytes, bytes, bytes]  # message, arrays, trace id: what an envelope needs


class Outbox:
    """The messages of one link, encoded already. `link` is higher for each later link to the same peer."""

    def __init__(self, peer: str, incarnation: int, link: int) -> None:
        self.peer, self.incarnation, self.link = peer, incarnation, link
        self.sent = 0  # number of the last message sent
        self.n_again = 0  # messages that the last repetition sends again
        self.has_heard = False  # the receiver has answered at least once
        self._acknowledged = 0
        self._mail: deque[EncodedMessage] = deque()  # those after `_acknowledged`
        self._is_answered = False  # an answer has come since the last beat
        self._may_repeat = True  # since the last repetition, the receiver has been asked again or a beat has passed
        self._n_unanswered, self._reconnect_at = 0, _SILENT_BEATS

    @property
    def n_waiting(self) -> int:
        """Messages that are not sent yet."""
        return len(self._mail) - (self.sent - self._acknowledged)

    def push(self, frames: EncodedMessage) -> None:
        """Queue one message. Raises: MailboxFull."""
        if self.n_waiting >= BACKLOG_MESSAGES:
            raise MailboxFull(f"{self.peer}: expected credit within {BACKLOG_MESSAGES} waiting messages, got none")
        self._mail.append(frames)

    def next_message(self) -> EncodedMessage | None:
        """Message number `sent` + 1, if there is one and credit allows it. The caller counts it in `sent` when it has left."""
        in_flight = self.sent - self._acknowledged
        return self._mail[in_flight] if in_flight < WINDOW_MESSAGES and in_flight < len(self._mail) else None

    def handle_answer(self, answer: LinkAnswer) -> bool:
        """The receiver's answer: forget what it has handled; go back to the message that it wants. Send afterwards. Returns
        True if messages were lost: the last `n_again` are to be sent again.

        An answer about another link, or about numbers that were never sent, changes nothing.
        """
        if answer.link != self.link or answer.handled > self._acknowledged + len(self._mail):
            return False
        self.has_heard = self._is_answered = True
        self._n_unanswered, self._reconnect_at = 0, _SILENT_BEATS
        while self._acknowledged < answer.handled:
            self._mail.popleft()
            self._acknowledged += 1
        self.sent = max(self.sent, self._acknowledged)
        if not (self._acknowledged < answer.wanted <= self.sent and self._may_repeat):
            return False
        self.n_again = self.sent - answer.wanted + 1
        self.sent, self._may_repeat = answer.wanted - 1, False
        return True

    def beat(self) -> bool:
        """Call it every `BEAT_S` seconds. Returns True if the receiver must be asked what it has: it has been silent since the
        last beat although messages are not acknowledged."""
        is_silent, self._is_answered, self._may_repeat = not self._is_answered, False, True
        if not is_silent or self.sent == self._acknowledged:
            return False
        self._n_unanswered += 1
        return True

    def must_reconnect(self) -> bool:
        """True if so many questions have had no answer that a new connection must be tried, more and more rarely. Then every
        message that is not acknowledged is sent again: `n_again`."""
        if self._n_unanswered < self._reconnect_at:
            return False
        self._n_unanswered, self._reconnect_at = 0, min(2 * self._reconnect_at, _MOST_SILENT_BEATS)
        self.n_again = self.sent - self._acknowledged
        self.sent = self._acknowledged
        return True
