"""What a user of the terminal sets for requests, as text: `temperature 0.2`, `stop ["\\n"]`. Pure.

The options and their ranges are those of the client library, which checks them; nothing is listed here.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any, get_type_hints

from messages.client.options import Options, request_of
from messages.errors import InvalidRequest

_OURS = ("request", "trace_id", "n", "best_of", "echo", "sampling")  # one answer is shown, under an id of our own
_SWITCHES = {"True": True, "False": False, "on": True, "off": False}
_TYPES = get_type_hints(Options)
SETTABLE = tuple(sorted(_TYPES.keys() - set(_OURS)))


def option_of(name: str, text: str) -> Any:
    """The value of the option `name` from its text: JSON, on and off, else the text itself.

    Raises: InvalidRequest naming the option and what was expected.
    """
    if name not in SETTABLE:
        close = get_close_matches(name, SETTABLE, n=1)
        known = "an option of a request" if close else f"one of {', '.join(SETTABLE)}"
        raise InvalidRequest(f"expected {known}, got {name}{f'; did you mean {close[0]}?' if close else ''}", name)
    value = _value(text)
    if _TYPES[name] is str and not isinstance(value, str):
        value = text
    request_of(None, None, [{"role": "user", "content": ""}], {name: value})
    return value


def assigned(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Options from texts `NAME=VALUE`. Raises: InvalidRequest."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidRequest(f"expected NAME=VALUE, got {assignment!r}", "option")
        options[name.strip()] = option_of(name.strip(), text.strip())
    return options


def _value(text: str) -> Any:
    if text in _SWITCHES:
        return _SWITCHES[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
