"""Why a request is not taken: one small vocabulary for every way in, and its HTTP statuses."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "invalid", "not_found", "overloaded", "too_long", "unavailable", "internal", "too_large", "quarantined", "conflict"
]
STATUS_BY_CODE: dict[Code, int] = {
    "invalid": 400,
    "too_long": 400,
    "not_found": 404,
    "conflict": 409,  # the request's id belongs to another request
    "too_large": 413,
    "quarantined": 422,  # not a 500, which clients repeat by themselves: it would kill workers again
    "overloaded": 429,
    "internal": 500,
    "unavailable": 503,
}

JOURNAL_UNAVAILABLE = "journal_unavailable"


class Refusal(Exception):
    """A request that is refused before it is accepted. `field` names the culprit when there is one."""

    def __init__(
        self, code: Code, detail: str, *, field: str = "", retry_after_s: float = 0.0, status: int = 0, name: str = ""
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.field, self.retry_after_s = code, detail, field, retry_after_s
        self.status = status or STATUS_BY_CODE[code]
        self.name = name  # OpenAI's `code` where it has one of its own


def invalid(field: str, expected: str, got: object) -> Refusal:
    """The usual refusal: what was expected, what came."""
    text = repr(got)
    return Refusal("invalid", f"{field}: expected {expected}, got {text[:120]}{'…' if len(text) > 120 else ''}", field=field)


def journal_unavailable() -> Refusal:
    """No request can be recorded now, so none can be accepted."""
    detail = "the request journal does not take writes, so nothing new can be accepted"
    return Refusal("unavailable", detail, retry_after_s=5.0, name=JOURNAL_UNAVAILABLE)
