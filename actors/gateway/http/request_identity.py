"""Which request an HTTP call is about: a new one, or one that is running or finished and is asked for again.

    Idempotency-Key    names one generation: the same body again joins it, another body is refused
    Last-Event-ID      the last event that the client has read: it gets what comes after it

The key is the id of the request here and in the log. Where an API's ids have a form, its answers have the key in that form
(`chatcmpl-key-KEY`), and clients may ask by either. X-Request-Id identifies nothing: answer and log repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from actors.gateway.admission.new_request import Naming
from actors.gateway.bodies.request_name import RequestName
from actors.gateway.requests.refusals import invalid
from messages.wire.message import MAX_SHORT_CHARACTERS

# An id that clients may give. The answer repeats it in a header, so it has no characters that a header cannot carry.
ID_PATTERN, EVENT_ID_PATTERN = f"[ -~]{{1,{MAX_SHORT_CHARACTERS}}}", r"[0-9]{1,20}"
_ID = re.compile(ID_PATTERN)
_ID_RULE = f"1 to {MAX_SHORT_CHARACTERS} printable ASCII characters"
_EVENT_ID = re.compile(EVENT_ID_PATTERN)
_FORMS = ("chatcmpl-", "cmpl-", "resp_", "msg_")  # how the ids of answers begin in the APIs of OpenAI and Anthropic
_MARK = "key-"
_KEY_IN_FORM = re.compile(f"(?:(?:{'|'.join(_FORMS)}){_MARK})+(?=.)")


class Identity(msgspec.Struct, frozen=True):
    """The ids in the headers of one call; "" and 0 for those that were not sent."""

    key: str = ""  # Idempotency-Key
    last_event: int = 0  # Last-Event-ID


def name_of(
    identity: Identity,
    path: str,
    body: bytes | bytearray,
    *,
    prefix: str,
    mint: Callable[[str], str],
    is_streamed: bool = False,
    given_in_body: str = "",
) -> RequestName:
    """The name of a request that arrives at `path`. `mint`: makes an id that begins with `prefix` if the client gives none.
    `is_streamed`: it is recorded so that a client can come back to it, even if the client gave it no id. `given_in_body`: an
    id in place of the key.

    Raises: Refusal for a Last-Event-ID without an id: nobody knows of which stream it is.
    """
    given = given_in_body or identity.key
    if identity.last_event and not given:
        raise invalid("Last-Event-ID", "an Idempotency-Key beside it, which names the stream", identity.last_event)
    return RequestName(
        given or mint(prefix),
        "request_id" if given_in_body else "Idempotency-Key",
        Naming.FIXED if given_in_body else Naming.KEY,
        is_resumable=bool(given) or is_streamed,
        ends_with_client=not given,
        must_be_known=identity.last_event > 0,
        digest=digest_of(path, body) if given else "",
        answer_id=_in_form(given, prefix) if given and prefix in _FORMS else "",
    )


def request_of(shown: str) -> str:
    """The id of the request that has `shown` as the id in its answer, or is called so itself."""
    return _KEY_IN_FORM.sub("", shown, count=1) if _KEY_IN_FORM.match(shown) else shown


def _in_form(key: str, prefix: str) -> str:
    return key if key.startswith(prefix) else f"{prefix}{_MARK}{key}"


def identity_of(headers: Mapping[bytes, bytes]) -> Identity:
    """The identity in the headers of a call, whose names are in lower case. Raises: Refusal for one that cannot be used."""
    key = headers.get(b"idempotency-key")
    last_event = headers.get(b"last-event-id")
    return Identity(
        "" if key is None else request_of(_checked(key.decode("latin-1"), "Idempotency-Key")),
        0 if last_event is None else event_number(last_event.decode("latin-1"), "Last-Event-ID"),
    )


def correlation_id_of(headers: Mapping[bytes, bytes]) -> str:
    """X-Request-Id, "" without one. One that cannot be used is ignored, because proxies add it."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _ID.fullmatch(given) else ""


def checked_request_id(given: str | None) -> str:
    """The `request_id` of a body; empty without one. Raises: Refusal, by the same rule as for the key."""
    return "" if given is None else request_of(_checked(given, "request_id"))


def event_number(given: str, field: str) -> int:
    """The number in the id of an event; 0 for an empty one, which means that nothing was read. Raises: Refusal."""
    if given and not _EVENT_ID.fullmatch(given):
        raise invalid(field, "the id of an event of this stream", given)
    return int(given or 0)


def digest_of(path: str, raw: bytes | bytearray) -> str:
    """The digest of a call: two calls with the same id are the same request if their digests are equal."""
    return blake2b(raw, digest_size=16, key=path.encode()[:64]).hexdigest()


def _checked(given: str, field: str) -> str:
    if not _ID.fullmatch(given):
        raise invalid(field, _ID_RULE, given)
    return given
