"""The exception for a request that is refused, and the HTTP status of each code."""

from __future__ import annotations

from messages.outcomes import Code

STATUS_BY_CODE: dict[Code, int] = {
    "invalid": 400,
    "too_long": 400,
    "too_large_for_memory": 400,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "quarantined": 422,  # not 500: clients retry a 500 automatically, which would kill workers again
    "overloaded": 429,
    "internal": 500,
    "unavailable": 503,
    "deadline": 504,
}


class Refusal(Exception):
    """A request is refused before it is accepted.

    Args:
        detail: the message for the client.
        field: the field at fault, "" if none is.
        retry_after_s: after this time the client may retry; 0: a retry does not help.
        status: the HTTP status if it is not that of `code`.
        name: the error code for HTTP clients, where it says more than `code`.
    """

    def __init__(
        self, code: Code, detail: str, *, field: str = "", retry_after_s: float = 0.0, status: int = 0, name: str = ""
    ) -> None:
        super().__init__(detail)
        self.code: Code = code
        self.detail, self.field, self.retry_after_s = detail, field, retry_after_s
        self.status = status or STATUS_BY_CODE[code]
        self.name = name


def invalid(field: str, expected: str, got: object) -> Refusal:
    """The refusal of an invalid field: what was expected, and what came."""
    text = repr(got)
    return Refusal("invalid", f"{field}: expected {expected}, got {text[:120]}{'…' if len(text) > 120 else ''}", field=field)


def journal_unavailable() -> Refusal:
    """The refusal of a request that the journal cannot record."""
    detail = "the request journal cannot be written, so no new request can be accepted"
    return Refusal("unavailable", detail, retry_after_s=5.0, name="journal_unavailable")


def check_model(asked: str, served: str) -> None:
    """Return if the model `asked` for is the one that is served; an empty name asks for any. Raises: Refusal."""
    if asked and asked != served:
        detail = f"model: expected {served!r}, got {asked[:200]!r}"
        raise Refusal("not_found", detail, field="model", name="model_not_found")
