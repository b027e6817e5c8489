"""Calls that are written as JSON objects with the keys `name` and `arguments` (or `parameters`). Pure.

The arguments are passed on as they come, once the name is known. If the keys come in another order, or the arguments are a text
that holds JSON, the object is passed on when it is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from actors.gateway.text.blank_run import BLANKS
from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.tools.call_splitter import WAIT, CallSplitter, json_text

_HEAD = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_FIRST_KEY = re.compile(r'\s*\{\s*(?:"((?:[^"\\]|\\.)*)"|[^"\s])')
_KEYS = ("name", "arguments", "parameters", "type", "id", "function")
_NAMED = re.compile(r"\s*([\w.-]+)\s*(\[ARGS\]|\{|(?:\[A?R?G?S?)?$)")  # the second group is one of the two, or a beginning
_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class JsonSpan:
    """Finds where JSON objects and lists end in a growing text. It checks nothing else."""

    def __init__(self) -> None:
        self.at, self.depth = 0, 0  # what has been read, and how many brackets are open there
        self.is_in_string = False  # there

    def find_end(self, text: str, floor: int) -> int:
        """The position after the bracket that closes all but `floor` open ones; -1: it has not come. `text`: as before, or
        longer."""
        while found := (_IN_STRING if self.is_in_string else _STRUCTURE).search(text, self.at):
            character = found[0]
            if character == "\\":
                if found.end() >= len(text):
                    self.at = found.start()
                    return -1
                self.at = found.end() + 1
                continue
            self.at = found.end()
            if character == '"':
                self.is_in_string = not self.is_in_string
            elif character in "{[":
                self.depth += 1
            else:
                self.depth -= 1
                if self.depth <= floor:
                    return self.at
        self.at = len(text)
        return -1


class JsonCallSplitter(CallSplitter):
    """Reads one JSON object or several. `separators`: what may stand between two of them; in a list it is a comma.
    `closers`: what may stand after the last one."""

    separators: Sequence[str] = ()
    closers: Sequence[str] = ()

    def read_calls(self) -> bool:
        """Read an object or a list of them, which comes next. Returns False to wait for more text."""
        self._is_in_list = False
        found = self.peek_of("[", "{")
        if found == "[":
            self._is_in_list = bool(self.next_of("["))
            return self.go(self._read_element)
        return found is not WAIT and (self._read_object() if found else self.otherwise())

    def otherwise(self) -> bool:
        """Read what comes if it is neither an object nor a list. Returns False to wait for more text."""
        return self.fail()

    def read_arguments(self, name: str) -> bool:
        """Read the arguments of a call, which come next: a bare JSON object. Returns False to wait for more text."""
        self.out.append(TextPiece(Channel.CALL, name))
        self._span, self._n_passed, self._floor, self._is_in_list = JsonSpan(), 0, 0, False
        return self.go(self._read_arguments)

    def fail_at_end(self) -> None:
        if self._read in (self._read_arguments, self._read_tail):
            self.out.append(TextPiece(Channel.NO_CALL, self.begun + self.held))
        elif self._read != self._read_after or self.peek_of(*self.closers) is not WAIT:  # half of a closer says nothing
            super().fail_at_end()

    def _read_element(self) -> bool:
        found = self.peek_of("{")
        return found is not WAIT and (self._read_object() if found else self.fail())

    def _read_object(self) -> bool:
        self._span, self._n_undecided = JsonSpan(), 0  # so many characters of the head have not decided what it is
        return self.go(self._read_head)

    def _read_head(self) -> bool:
        new = self.held[self._n_undecided :]
        if self._n_undecided and ('"' not in new if self._span.is_in_string else not new.strip(BLANKS)):
            self._n_undecided = len(self.held)  # more of a text that has not ended, or blanks, decide nothing either
            return False
        if head := _HEAD.match(self.held):
            if head[1] not in self.names:
                return self.fail()
            self.out.append(TextPiece(Channel.CALL, head[1]))
            self._span.find_end(self.held[: head.end()], 0)
            self._n_passed, self._floor = head.end(), 1
            return self.go(self._read_arguments)
        key = _FIRST_KEY.match(self.held)
        if key and key[1] not in _KEYS:
            return self.fail()
        end = self._span.find_end(self.held, 0)
        if end < 0:
            self._n_undecided = len(self.held)
            return False
        called = _call_of(self.held[:end])
        if called is None or called[0] not in self.names:
            return self.fail()
        self.take(end)
        self.called(TextPiece(Channel.CALL, called[0]), TextPiece(Channel.ARGUMENTS, called[1]))
        return self.go(self._read_after)

    def _read_arguments(self) -> bool:
        end = self._span.find_end(self.held, self._floor)
        stop = len(self.held) if end < 0 else end
        if more := self.held[self._n_passed : stop]:
            self.out.append(TextPiece(Channel.ARGUMENTS, more))
        self._n_passed = stop
        return end >= 0 and self.go(self._read_tail)

    def _read_tail(self) -> bool:
        end = self._span.find_end(self.held, 0) if self._floor else self._n_passed
        if end < 0:
            return False
        if _object_of(self.take(end)) is None:
            self.out.append(TextPiece(Channel.NO_CALL, self.begun))
            return self.leave()
        self.called()
        return self.go(self._read_after)

    def _read_after(self) -> bool:
        if self._is_in_list:
            found = self.next_of(",", "]")
            self._is_in_list = found in (WAIT, ",")
        elif self.peek_of("{") and self.separators:
            return self._read_object()
        else:
            found = self.next_of(*self.separators, *self.closers)
        if found is WAIT:
            return False
        if found in self.separators or found == ",":
            return self.go(self._read_element)
        return self.go(self._read_after) if found == "]" else self.leave()


class Hermes(JsonCallSplitter):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or a list of objects (Hermes, Qwen 2.5 and 3, SmolLM2)."""

    marks = ("<tool_call>",)
    closers = ("</tool_call>",)

    def after_mark(self, mark: str) -> bool:
        return self.read_calls()


class LlamaJson(JsonCallSplitter):
    """The answer is `{"name": ..., "parameters": {...}}`, or several separated by semicolons (Llama 3.1 and later)."""

    marks = ("<|python_tag|>",)
    first_marks = ("{",)
    separators = (";", ",")

    def after_mark(self, mark: str) -> bool:
        if mark == "{":
            self.give_back(1)
        return self.read_calls()


class Mistral(JsonCallSplitter):
    """`[TOOL_CALLS]` and a list of JSON objects; or for each call that mark, the name, perhaps `[ARGS]`, and the arguments."""

    marks = ("[TOOL_CALLS]",)
    first_marks = ("[{",)  # a tokenizer may hide the mark

    def after_mark(self, mark: str) -> bool:
        if mark == "[{":
            self.give_back(2)
        return self.read_calls()

    def otherwise(self) -> bool:
        named = _NAMED.match(self.held)
        if named is None:
            return self.fail()
        if named[2] not in ("{", "[ARGS]"):
            return False
        if named[1] not in self.names:
            return self.fail()
        self.take(named.end(1) if named[2] == "{" else named.end())
        return self.read_arguments(named[1])


def _call_of(text: str) -> tuple[str, str] | None:
    """The name and the arguments (as JSON text) of a call that is written as an object; None if it is no call."""
    value = _object_of(text)
    value = value.get("function", value) if value is not None else None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _object_of(arguments)
    return (value["name"], json_text(arguments)) if isinstance(arguments, dict) else None


def _object_of(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
        json_text(value)  # it has no infinities, which JSON lacks
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
