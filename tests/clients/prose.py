"""Takes the texts of other people out of recorded bodies, whose forms and short texts remain. Pure."""

from __future__ import annotations

import json
from typing import Any

_MOST_WORDS = 8  # of a text that remains
_MOST_CHARACTERS = 400  # of a text that stands for a longer one
_WORD = "word "


def without_prose(value: Any) -> Any:
    """A JSON value in which each text of more than a few words is one of as many characters, but at most 400.

    Texts that are JSON themselves, such as arguments of calls, stay JSON. Keys remain.
    """
    if isinstance(value, dict):
        return {key: without_prose(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_prose(inner) for inner in value]
    if not isinstance(value, str) or len(value.split()) <= _MOST_WORDS:
        return value
    try:
        inner = json.loads(value)
    except ValueError:
        n_characters = min(len(value), _MOST_CHARACTERS)
        return (_WORD * n_characters)[:n_characters].rstrip()
    return json.dumps(without_prose(inner))
