"""How a log line names the requests that it is about, so that `supervisor logs --request` finds it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

REQUEST, REQUESTS = "request", "requests"  # the fields of a line about one request, and about several
_MOST = 1024  # in one line


def names_of(requests: Iterable[str]) -> list[str]:
    """Ids for the field `requests` of one line, each once. Those beyond `_MOST` are left out."""
    return list(islice(dict.fromkeys(requests), _MOST))
