"""The exception for a request that is refused, and the HTTP status of each code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

from messages.outcomes import CODE_BY_FINE_CODE, Code, FineCode, NoCode

_MOST_CHARACTERS = 120  # of a value that a refusal shows
_COME_BACK = "come back"
_MOST_TOLD = 4  # unknown fields that one names
_MOST_DEPTH = 4  # of nested lists and objects
_NO_HEADERS: Mapping[str, str] = {}

STATUS_BY_CODE: dict[Code | FineCode, int] = {
    "invalid": 400,
    "too_long": 400,
    "too_large_for_memory": 400,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "quarantined": 422,  # not 500: clients retry a 500 automatically, which would kill workers again
    "overloaded": 429,
    "internal": 500,
    "model_changed": 500,
    "grammar_too_complex": 422,  # not 500: another try would end at the same place
    "unavailable": 503,
    "deadline": 504,
    "invalid_api_key": 401,
    "origin_not_allowed": 403,
    "host_not_allowed": 403,
    "operator_only": 403,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "gone": 410,
    "idempotency_key_reused": 422,  # not 409, which clients repeat by themselves: that never helps under a key
    "headers_too_large": 431,
}


class Refusal(Exception):
    """A request is refused before it is accepted.

    Args:
        why: what the refusal is called. `code` is its general code, `fine_code` the finer one or "".
        detail: the message for the client.
        field: the field at fault, "" if none is.
        retry_after_s: after this time the client may retry, which the message says too; 0: a retry does not help.
        status: the HTTP status if it is not that of `STATUS_BY_CODE`.
        headers: further ones of its HTTP response.
        limit: the limit that was passed, as its name and its number, for traces; "" if none was.
    """

    code: Code
    fine_code: FineCode | NoCode

    def __init__(
        self,
        why: Code | FineCode,
        detail: str,
        *,
        field: str = "",
        retry_after_s: float = 0.0,
        status: int = 0,
        headers: Mapping[str, str] = _NO_HEADERS,
        limit: str = "",
    ) -> None:
        self.cause = detail  # the message without when to come back, unless that was given in it
        if retry_after_s > 0.0 and _COME_BACK not in detail:
            detail = f"{detail}; {_COME_BACK} in {duration_text(retry_after_s)}"
        super().__init__(detail)
        if why in CODE_BY_FINE_CODE:
            self.code, self.fine_code = CODE_BY_FINE_CODE[why], why
        else:
            self.code, self.fine_code = cast("Code", why), ""
        self.detail, self.field, self.retry_after_s, self.headers = detail, field, retry_after_s, headers
        self.limit = limit
        self.status = status or STATUS_BY_CODE.get(why) or STATUS_BY_CODE[self.code]


def duration_text(span_s: float) -> str:
    """A time as OpenAI writes it: "20ms", "8s", "6m0s", "14h59m11s". It is rounded up."""
    if span_s < 1.0:
        return f"{math.ceil(span_s * 1e3)}ms"
    minutes, seconds = divmod(math.ceil(span_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{seconds}s"


def invalid(field: str, expected: str, got: object) -> Refusal:
    """The refusal of an invalid field: what was expected, and what came."""
    return Refusal("invalid", f"{field}: expected {expected}, got {json_text(got)}", field=field)


def prompt_too_long(field: str, context_tokens: int, n_tokens: int, *, is_estimate: bool = False) -> Refusal:
    """The refusal of a prompt that leaves no room for an answer. is_estimate: it has n_tokens or more."""
    room = f"at most {context_tokens - 1} tokens (this model's context is {context_tokens}, of which one must stay free)"
    detail = f"{field}: expected {room}, got {'at least ' if is_estimate else ''}{n_tokens}"
    return Refusal("too_long", detail, field=field, limit=f"context_tokens={context_tokens}")


def json_text(value: object) -> str:
    """A value that came from a client, as the client wrote it: in JSON, and cut after 120 characters."""
    if value in ([], {}, ""):
        return {list: "an empty list", dict: "an empty object"}.get(type(value), "an empty string")
    text = json.dumps(_beginning(value, _MOST_DEPTH), ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def _beginning(value: Any, depth: int) -> Any:
    """As much of a value as can be shown. The rest, which may be megabytes, is not looked at."""
    most = _MOST_CHARACTERS + 1
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, list):
        return [_beginning(item, depth - 1) for item in value[:most]] if depth else ["…"]
    if isinstance(value, dict):
        items = islice(value.items(), most)
        return {key[:most]: _beginning(item, depth - 1) for key, item in items} if depth else {"…": "…"}
    return value


def check_one_given(unknown: Sequence[str] = (), /, **fields: object) -> None:
    """Return if one of two or more fields is given and the others are None. `unknown`: the names of fields that were passed
    over, of which one may be meant. Raises: Refusal naming the first."""
    given = sum(value is not None for value in fields.values())
    if given == 1:
        return
    *names, last = fields
    several, none = ("both", "neither") if len(names) == 1 else (str(given), "none")
    passed_over = ", ".join(json_text(name) for name in unknown[:_MOST_TOLD])
    got = several if given else f"{none}, and the unknown field {passed_over}" if passed_over else none
    raise Refusal("invalid", f"{names[0]}: expected exactly one of {', '.join(names)} and {last}, got {got}", field=names[0])


def stopped() -> Refusal:
    """The refusal when this gateway ends before it has an answer."""
    return Refusal("unavailable", "the server was stopped before the answer began", retry_after_s=1.0)


def journal_unavailable() -> Refusal:
    """The refusal of a request that the journal cannot record."""
    detail = "the request journal cannot be written, so no new request can be accepted"
    return Refusal("journal_unavailable", detail, retry_after_s=5.0)
