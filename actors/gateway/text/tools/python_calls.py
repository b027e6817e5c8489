"""Calls that are written as a list of Python's calls: `[get_weather(city="Paris"), now()]` (Llama 3.2 and 4). Pure.

They stand at the beginning of the answer. A call is passed on when it is complete.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.tools.call_splitter import WAIT, CallSplitter, json_text

_HEAD = re.compile(r"\s*([A-Za-z_][\w.]*)\s*\(")
_HEAD_BEGUN = re.compile(r"\s*(?:[A-Za-z_][\w.]*\s*)?\Z")
_STRUCTURE = re.compile(r"""["'()\[\]{}\\]""")
_JSON_NAMES = {"true": True, "false": False, "null": None}


class Pythonic(CallSplitter):
    """A list of calls whose arguments are all named and literal."""

    marks = ("<|python_start|>",)
    first_marks = ("[",)

    def after_mark(self, mark: str) -> bool:
        if mark == "[":
            return self.go(self._read_call)
        found = self.next_of("[")
        return found is not WAIT and (self.go(self._read_call) if found else self.fail())

    def _read_call(self) -> bool:
        head = _HEAD.match(self.held)
        if head is None:
            return not _HEAD_BEGUN.match(self.held) and self.fail()
        if head[1] not in self.names:
            return self.fail()
        self._name, self._span = head[1], _PythonSpan(head.end() - 1)
        return self.go(self._read_arguments)

    def _read_arguments(self) -> bool:
        start, end = self._span.start, self._span.find_end(self.held)
        if end < 0:
            return False
        arguments = _arguments_of(self.held[start:end])
        if arguments is None:
            return self.fail()
        self.take(end)
        self.called(TextPiece(Channel.CALL, self._name), TextPiece(Channel.ARGUMENTS, arguments))
        return self.go(self._read_after)

    def _read_after(self) -> bool:
        found = self.next_of(",", "]")
        if found is WAIT:
            return False
        return self.go(self._read_call) if found == "," else self.leave()


class _PythonSpan:
    """Finds the bracket that closes the one at `start` of a growing text. No part of the text is read twice."""

    def __init__(self, start: int) -> None:
        self.start = self._at = start
        self._depth, self._quote = 0, ""

    def find_end(self, text: str) -> int:
        """The position after that bracket; -1: it has not come. `text`: as before, or longer."""
        while found := _STRUCTURE.search(text, self._at):
            character, self._at = found[0], found.end()
            if character == "\\":
                self._at += bool(self._quote)
            elif self._quote:
                self._quote = "" if character == self._quote else self._quote
            elif character in "\"'":
                self._quote = character
            else:
                self._depth += 1 if character in "([{" else -1
                if not self._depth:
                    return self._at
        self._at = max(self._at, len(text))
        return -1


def _arguments_of(bracketed: str) -> str | None:
    """The named arguments within brackets as a JSON object; None for anything else."""
    try:
        call = ast.parse("f" + bracketed, mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            return None
        return json_text({str(keyword.arg): _value_of(keyword.value) for keyword in call.keywords})
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, SystemError):  # the last: CPython 106905
        return None


def _value_of(node: ast.expr) -> Any:
    """The value of a literal, or of one of JSON's names. Raises: ValueError."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value_of(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {str(ast.literal_eval(key)): _value_of(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    return ast.literal_eval(node)
