"""Calls that are written with a mark for each parameter, as Qwen3-Coder writes them. Pure.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

The outer mark may be left out. A JSON object within it is read as Hermes writes it. A value is passed on when it is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.tools.call_splitter import WAIT, json_text
from actors.gateway.text.tools.json_calls import Hermes

_FUNCTION, _PARAMETER = "<function=", "<parameter="
_PARAMETER_END = "</parameter>"
_VALUE_END = re.compile("|".join((_PARAMETER_END, _PARAMETER, "</function>")))
_OVERLAP = len(_PARAMETER_END) - 1  # characters of the longest end that may have come without its last one


class QwenXml(Hermes):
    """`texts`: the parameters that are texts, as "tool.parameter"; a value of another one is JSON if it can be read as such."""

    marks = ("<tool_call>", _FUNCTION)

    def __init__(self, names: Collection[str], texts: Collection[str]) -> None:
        super().__init__(names)
        self._texts = frozenset(texts)

    def after_mark(self, mark: str) -> bool:
        return self._read_name() if mark == _FUNCTION else self.read_calls()

    def otherwise(self) -> bool:
        found = self.next_of(_FUNCTION)
        return found is not WAIT and (self.go(self._read_name) if found else self.fail())

    def fail_at_end(self) -> None:
        if self._read in (self._read_inside, self._read_key, self._read_value):
            self.out.append(TextPiece(Channel.NO_CALL, self.begun + self.held))
        else:
            super().fail_at_end()

    def _read_name(self) -> bool:
        name, end, _ = self.held.partition(">")
        if not end and any(known.startswith(name) for known in self.names):
            return False
        if not end or name not in self.names:
            return self.fail()
        self.take(len(name) + 1)
        self._name, self._before = name, "{"
        self.out.append(TextPiece(Channel.CALL, name))
        return self.go(self._read_inside)

    def _read_inside(self) -> bool:
        found = self.next_of(_PARAMETER, "</function>")
        if found is WAIT:
            return False
        if found == _PARAMETER:
            return self.go(self._read_key)
        if not found:
            self.out.append(TextPiece(Channel.NO_CALL, self.begun))
            return self.leave()
        self.called(TextPiece(Channel.ARGUMENTS, "{}" if self._before == "{" else "}"))
        self._is_in_list = False
        return self.go(self._read_after)

    def _read_key(self) -> bool:
        self._key, end, _ = self.held.partition(">")
        if end:
            self.take(len(self._key) + 1)
            self._n_searched = 0  # characters of the value, in which it does not end
            return self.go(self._read_value)
        return False

    def _read_value(self) -> bool:
        found = _VALUE_END.search(self.held, max(self._n_searched - _OVERLAP, 0))
        if found is None:
            self._n_searched = len(self.held)
            return False
        value = self.take(found.start()).removeprefix("\n").removesuffix("\n")
        if found[0] == _PARAMETER_END:
            self.take(len(_PARAMETER_END))
        shown = f"{self._before}{json_text(self._key)}: {self._json_of(value)}"
        self.out.append(TextPiece(Channel.ARGUMENTS, shown))
        self._before = ", "
        return self.go(self._read_inside)

    def _json_of(self, value: str) -> str:
        if f"{self._name}.{self._key}" not in self._texts:
            try:
                return json_text(json.loads(value))
            except (ValueError, RecursionError):
                pass
        return json_text(value)
