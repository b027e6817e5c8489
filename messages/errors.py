"""The exception tree of the wire and of the client library.

TardigradeError
 ├─ WireError              bytes that are not a message of this protocol: only their sender's connection suffers
 ├─ MailboxFull            a peer's credit and backlog are used up: the sender decides what to do
 ├─ UnknownPeer            mail for an actor that nobody announced (or that is proven dead)
 ├─ ConfigError            the configuration cannot be used; names the key
 └─ ClientError            what a caller of messages.client can meet
     ├─ InvalidRequest     the request is wrong; `field` says where. Never retried
     ├─ Overloaded         refused for now; `retry_after_s` says when to come again
     ├─ Unavailable        no gateway answered within the deadline
     ├─ DeadlineExceeded   the call's own deadline passed
     └─ RequestFailed      accepted, and ended as failed (or an internal error)
         └─ Quarantined    workers died of this prompt: the server refuses it for a while
"""

from __future__ import annotations


class TardigradeError(Exception):
    """Base of every error that this project raises for the world's faults (bugs are assertions)."""


class WireError(TardigradeError):
    """Bytes from a peer are not a message: says what was expected, what came and, when known, which field."""


class MailboxFull(TardigradeError):
    """The bounded backlog to a peer is full."""


class UnknownPeer(TardigradeError):
    """No such living peer."""


class ConfigError(TardigradeError):
    """A configuration value cannot be used: names the key, what was expected and what came."""


class ClientError(TardigradeError):
    """Base of the client library's errors."""


class InvalidRequest(ClientError):
    """The request is wrong and will stay wrong. `field` names the culprit."""

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.field = field


class Overloaded(ClientError):
    """The server refuses for now. Come again after `retry_after_s` seconds."""

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(ClientError):
    """Nobody answers at this endpoint."""


class DeadlineExceeded(ClientError):
    """The deadline of the call passed before its end."""


class RequestFailed(ClientError):
    """The server accepted the request and could not finish it."""


class Quarantined(RequestFailed):
    """Workers died while they computed this prompt. The server refuses it for a while."""
