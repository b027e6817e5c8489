"""The items of a conversation in OpenAI's Responses API: what clients send, and what the model's template reads. Pure."""

from __future__ import annotations

from typing import Any

from actors.gateway.requests.refusals import invalid, json_text

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}  # kinds of parts, and the field
_SKIPPED = ("reasoning",)  # what a model has thought for earlier answers: templates leave it out
_BETWEEN = "\n\n"


def items_of(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`input` as a list of items. Raises: Refusal if it is empty."""
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    if not items:
        raise invalid("input", "text, or at least one item", given)
    return items


def turns_of_items(items: list[dict[str, Any]], instructions: str | None, n_before: int = 0) -> list[dict[str, str]]:
    """The turns for the model's template. What the system says at the beginning is one turn, because templates take one.

    `n_before`: how many of the items come from earlier responses; refusals count from there. Raises: Refusal.
    """
    turns = [{"role": "system", "content": instructions}] if instructions else []
    for index, item in enumerate(items):
        turn = _turn(item, f"input[{max(index - n_before, 0)}]")
        if turn is None:
            continue
        if turn["role"] == "system" and turns and all(one["role"] == "system" for one in turns):
            turns[0] = {"role": "system", "content": turns[0]["content"] + _BETWEEN + turn["content"]}
        else:
            turns.append(turn)
    if not turns:
        raise invalid("input", "at least one message", [])
    return turns


def _turn(item: Any, path: str) -> dict[str, str] | None:
    """One turn; None for an item that the template does not read. Raises: Refusal."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind in _SKIPPED:
        return None
    if kind != "message":
        raise invalid(path, '{"type": "message", "role": ..., "content": ...}', item)
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(f"{path}.role", f"one of {', '.join(_ROLES)}", role)
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(_part_text(part, f"{path}.content[{index}]") for index, part in enumerate(content))
    if not isinstance(content, str):
        raise invalid(f"{path}.content", "text or a list of parts with text", content)
    return {"role": _ROLES[role], "content": content}


def _part_text(part: Any, path: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(_TEXTS[kind]) if isinstance(kind, str) and kind in _TEXTS else None
    if not isinstance(text, str):
        raise invalid(path, f'{{"type": "input_text", "text": ...}} (kinds: {json_text(list(_TEXTS))})', part)
    return text
