"""The exception tree of the wire and of the client library.

TardigradeError
 ├─ WireError              bytes that are not a message of this protocol; only their sender's connection is affected
 ├─ MailboxFull            a peer's credit and backlog are used up: the sender decides what to do
 ├─ UnknownPeer            the receiver of a message was not announced, or is proven dead
 ├─ DescriptorError        a descriptor store refuses, or has gone
 ├─ ConfigError            the configuration cannot be used; the text names the key
 └─ ClientError            the errors that messages.client raises
     ├─ InvalidRequest     the request is wrong; `field` says where. A retry cannot help
     ├─ Overloaded         refused for now; `retry_after_s` says when to try again
     ├─ Unavailable        no gateway answered within the deadline
     ├─ DeadlineExceeded   the deadline of the call, or the server's limit, passed
     └─ RequestFailed      the server accepted the request and could not finish it
         └─ Quarantined    workers died while they computed this prompt; it is refused for a while
"""

from __future__ import annotations


class TardigradeError(Exception):
    """Base of every error of this project that is not a bug. (Bugs are failed assertions.)"""


class WireError(TardigradeError):
    """Bytes from a peer are not a message. The text says what was expected, what came and, when known, which field."""


class MailboxFull(TardigradeError):
    """The bounded backlog to a peer is full."""


class UnknownPeer(TardigradeError):
    """There is no link to a peer of this name: it was not announced, or it is proven dead."""


class DescriptorError(TardigradeError):
    """A descriptor store has refused a request, does not answer, or has gone."""


class ConfigError(TardigradeError):
    """A configuration value cannot be used. The text names the key, what was expected and what came."""


class ClientError(TardigradeError):
    """Base of the client library's errors. `code`: the server's word for a refusal (a `FineCode` or `Code` of
    `messages.outcomes`); "" if the error does not come from a refusal."""

    code: str = ""


class InvalidRequest(ClientError):
    """The request is wrong; sending it again cannot help. `field` names the wrong field."""

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.field = field


class Overloaded(ClientError):
    """The server refuses for now. Try again after `retry_after_s` seconds."""

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(ClientError):
    """No server answers at this endpoint, or the client was closed."""


class DeadlineExceeded(ClientError):
    """The deadline of the call, or the server's limit for all requests, passed before its end."""


class RequestFailed(ClientError):
    """The server accepted the request and could not finish it."""


class Quarantined(RequestFailed):
    """Workers died while they computed this prompt. The server refuses it for a while."""
