"""Commands of Ollama's chat: those that have an equal here are understood, the others are answered with what there is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_STATS = "/stats shows the figures of the last answer"
_ONE_MODEL = "a chat has the model it began with; supervisor chat --model MODEL"
_NOT_KEPT = "conversations are not kept; the lines that were typed are, unless --no-history"
_AS_IT_COMES = "lines are shown as they come, and the terminal wraps them"

# The longest beginning counts.
_EQUALS: Mapping[str, str] = {
    "set system": "system",
    "set parameter": "set",
    "set parameter num_predict": "set max_tokens",
    "set parameter repeat_penalty": "set repetition_penalty",
    "set format json": 'set response_format {"type": "json_object"}',
    "set noformat": "set response_format",
    "set think": 'set chat_template_kwargs {"enable_thinking": true}',
    "set nothink": 'set chat_template_kwargs {"enable_thinking": false}',
    "show system": "system",
    "show parameters": "set",
}
_HINTS: Mapping[str, str] = {
    "set parameter num_ctx": "a server has one length of context: supervisor start --max-length",
    "set parameter num_gpu": "a server has its GPUs for all requests: supervisor start --gpus",
    "set verbose": _STATS,
    "set quiet": _STATS,
    "set history": _NOT_KEPT,
    "set nohistory": _NOT_KEPT,
    "set wordwrap": _AS_IT_COMES,
    "set nowordwrap": _AS_IT_COMES,
    "show": "supervisor show MODEL prints everything about a model",
    "load": _ONE_MODEL,
    "save": _NOT_KEPT,
}


def translated(line: str) -> str:
    """A line that begins with a slash, in our own commands; the same line if it is none of Ollama's."""
    words = _beginning(line, _EQUALS)
    if not words:
        return line
    rest = _after(line, words)
    if _EQUALS[words] == "system":
        rest = _unquoted(rest)
    return f"/{_EQUALS[words]} {rest}".rstrip()


def hint(line: str) -> str:
    """What there is in the place of a command of Ollama's that has no equal; "" for all others."""
    words = _beginning(line, _HINTS)
    return f"/{words}: {_HINTS[words]}" if len(words) > len(_beginning(line, _EQUALS)) else ""


def _beginning(line: str, table: Mapping[str, str]) -> str:
    words = line[1:].split()
    for n in (3, 2, 1):
        if (beginning := " ".join(words[:n])) in table and len(words) >= n:
            return beginning
    return ""


def _after(line: str, words: str) -> str:
    """What follows the words at the beginning of a line, as it was typed."""
    n = len(words.split())
    return "".join(line[1:].split(maxsplit=n)[n:])


def _unquoted(text: str) -> str:
    for quotes in ('"""', '"'):
        if len(text) >= 2 * len(quotes) and text.startswith(quotes) and text.endswith(quotes):
            return text[len(quotes) : -len(quotes)]
    return text
