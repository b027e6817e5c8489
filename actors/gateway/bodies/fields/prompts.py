"""Prompts as OpenAI's APIs take them: a text, token ids, or a list of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from actors.gateway.requests.refusals import invalid


def prompts_of(
    prompt: str | list[Any] | np.ndarray, field: str = "prompt"
) -> tuple[list[str] | None, Sequence[list[int] | np.ndarray] | None]:
    """OpenAI's `prompt`, or its `input` of embeddings, as (texts, None) or (None, lists of ids). `field`: its name.

    Raises: Refusal.
    """
    if isinstance(prompt, np.ndarray):  # many token ids, see `BodyReader`
        return None, [prompt]
    if isinstance(prompt, str):
        return [prompt], None
    if prompt and isinstance(prompt[0], np.ndarray):
        return None, prompt
    if prompt and all(isinstance(item, str) for item in prompt):
        return prompt, None
    if prompt and _are_ids(prompt):
        return None, [prompt]
    if prompt and all(isinstance(item, list) and (not item or _are_ids(item)) for item in prompt):
        return None, prompt
    raise invalid(field, "text, token ids, or a list of either, not empty", prompt)


def _are_ids(values: list[Any]) -> bool:
    """True for integers. Booleans are none."""
    try:
        msgspec.convert(values, list[int])  # a fifth of the time of a look at the type of each in Python
    except msgspec.ValidationError:
        return False
    return True
