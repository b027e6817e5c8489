"""Answers as models of each dialect write them: calls and content are found, wherever the text is cut."""

from __future__ import annotations

import json
import re
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.text.pieces import Channel
from actors.gateway.text.tools import json_calls, python_calls, xml_calls
from actors.gateway.text.tools.dialects import Dialect, ToolRules, dialect_of
from actors.gateway.text.tools.json_calls import Hermes

NAMES = ["get_weather", "now"]
ARGUMENTS = '{"city": "Paris \\"{[", "days": [1, {"a": 2}]}'
WEATHER, NOW = ("get_weather", ARGUMENTS), ("now", "{}")
H, L, M, P, X = Dialect.HERMES, Dialect.LLAMA_JSON, Dialect.MISTRAL, Dialect.PYTHONIC, Dialect.QWEN_XML

# @: the arguments of WEATHER
ANSWERS: list[tuple[Dialect, str, list[str | tuple[str, str]]]] = [
    (H, '<tool_call>\n{"name": "get_weather", "arguments": @}\n</tool_call>', [WEATHER]),
    (
        H,
        'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": @}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>\n Done. ',
        ["Let me look.", WEATHER, NOW, "Done. "],
    ),
    (H, '<tool_call>[{"name": "get_weather", "arguments": @}, {"name": "now"}]</tool_call>', [WEATHER, NOW]),
    (H, '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}', [("now", '{"a": 1}')]),
    (H, '<tool_call>{"type": "function", "function": {"name": "now"}}</tool_call>', [NOW]),
    (L, '\n{"name": "get_weather", "parameters": @}; {"type": "function", "name": "now", "parameters": {}}',
     [WEATHER, NOW]),
    (L, '<|python_tag|>{"name": "now", "parameters": {}}', [NOW]),
    (M, '[TOOL_CALLS][{"name": "get_weather", "arguments": @}, {"name": "now", "arguments": {}, "id": "123456789"}]',
     [WEATHER, NOW]),
    (M, '[{"name": "get_weather", "arguments": @}]', [WEATHER]),
    (M, "[TOOL_CALLS]get_weather[ARGS]@[TOOL_CALLS]now{}", [WEATHER, NOW]),
    (P, "[get_weather(city='Paris \"{[', days=[1, {'a': 2}]), now()]", [WEATHER, NOW]),
    (P, "[now(a=true, b=None, c=-1.5)]", [("now", '{"a": true, "b": null, "c": -1.5}')]),
    (
        X,
        "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
        "</function>\n</tool_call>\n<function=now>\n</function>",
        ["Ok.", ("get_weather", '{"city": "12", "days": [1, 2]}'), NOW],
    ),
    (X, '<tool_call>{"name": "now", "arguments": {}}</tool_call>', [NOW]),
]  # fmt: skip
# no call in them: all of the text is content
PLAIN = [
    (H, '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
    (H, '<tool_call>{"answer": 42}</tool_call> '),
    (H, "a <tool_ca b \n<tool_call> hm"),
    (H, 'plain {"name": "now", "arguments": {}} text '),
    (L, '{"answer": {"name": "now"}} and'),
    (L, 'Text {"name": "now", "parameters": {}}'),
    (L, '{"name": "now", "par'),
    (M, "[link](x) [TOOL_CALLS] nothing"),
    (M, "[TOOL_CALLS]other[ARGS]{}"),
    (P, "[1] says get_weather(1)"),
    (P, '[get_weather("Paris")] no'),
    (P, "[now(a=f())"),
    (X, "<function=other></function>"),
    (X, "<tool_call>\n<functi"),
]


def split(dialect: Dialect, parts: list[str], most_calls: int = 0) -> list[tuple[Channel, str]]:
    """The runs of one channel, in order."""
    splitter = ToolRules(dialect, NAMES, ["get_weather.city"], most_calls).splitter()
    pieces = [piece for part in parts for piece in splitter.push(part)] + splitter.flush()
    assert all(piece.text for piece in pieces)
    return [
        (channel, "".join(piece.text for piece in run)) for channel, run in groupby(pieces, key=lambda piece: piece.channel)
    ]


def parts_of(found: list[tuple[Channel, str]]) -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = []
    for channel, text in found:
        match channel:
            case Channel.CALL:
                parts.append((text, ""))
            case Channel.ARGUMENTS:
                parts[-1] = (parts[-1][0], text)
            case _:
                assert channel is Channel.CONTENT
                parts.append(text)
    return parts


@pytest.mark.parametrize(("dialect", "text", "expected"), ANSWERS)
def test_calls_are_found_wherever_the_text_is_cut(dialect: Dialect, text: str, expected: list[str | tuple[str, str]]) -> None:
    text = text.replace("@", ARGUMENTS)
    found = split(dialect, [text])
    assert parts_of(found) == expected
    assert all(json.loads(part[1]) is not None for part in expected if isinstance(part, tuple))
    assert split(dialect, list(text)) == found, "cut at every character"
    for at in range(len(text)):
        assert split(dialect, [text[:at], text[at:]]) == found, at


@pytest.mark.parametrize(("dialect", "text"), PLAIN)
def test_what_is_no_call_is_content(dialect: Dialect, text: str) -> None:
    for parts in ([text], list(text), *([text[:at], text[at:]] for at in range(len(text)))):
        assert split(dialect, parts) == [(Channel.CONTENT, text)], parts


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (H, '<tool_call>{"name": "now", "arguments": {"city": Paris}}'),
        (H, '<tool_call>{"name": "now", "arguments": {"city": "Pa'),
        (M, '[TOOL_CALLS]now[ARGS]{"city": "Pa'),
        (X, "<function=now>\n<parameter=city>\nPa"),
        (X, "<function=now>\n<parameter=city>\nPa</parameter>, "),
    ],
)
def test_a_call_that_turns_out_to_be_none_gives_its_text_back(dialect: Dialect, text: str) -> None:
    for parts in ([text], list(text)):
        found = split(dialect, parts)
        assert found[0] == (Channel.CALL, "now")
        assert (
            "".join(piece for channel, piece in found if channel in (Channel.NO_CALL, Channel.CONTENT)).strip() == text.strip()
        )


@pytest.mark.parametrize("end", ["\n", "\n<", "\n</tool_call"])
def test_an_answer_that_is_cut_in_the_mark_after_a_call_is_the_call_alone(end: str) -> None:
    text = '<tool_call>\n{"name": "now", "arguments": {}}' + end
    assert parts_of(split(H, [text])) == parts_of(split(H, list(text))) == [NOW]


def test_arguments_come_as_the_model_writes_them() -> None:
    splitter = ToolRules(H, NAMES).splitter()
    pieces = splitter.push('<tool_call>\n{"name": "now", "arguments": {"a": "b')
    assert pieces == [(Channel.CALL, "now"), (Channel.ARGUMENTS, '{"a": "b')]
    assert splitter.push('c"') == [(Channel.ARGUMENTS, 'c"')]


class _CountedSearches:
    """A pattern that counts the characters which it was asked to search."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self.n_read = pattern, 0

    def search(self, text: str, at: int) -> re.Match[str] | None:
        found = self._pattern.search(text, at)
        self.n_read += max((found.end() if found else len(text)) - at, 0)
        return found

    def match(self, text: str) -> re.Match[str] | None:
        self.n_read += len(text)
        return self._pattern.match(text)


def test_a_long_call_in_python_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _CountedSearches(python_calls._STRUCTURE)
    monkeypatch.setattr(python_calls, "_STRUCTURE", counted)
    text = "[now(a=[" + ", ".join(f"{{'k{i}': '({i}) \\\\'}}" for i in range(200)) + "])]"
    assert [name for name, _ in split(P, list(text))] == [Channel.CALL, Channel.ARGUMENTS]
    assert counted.n_read <= len(text)


def test_a_long_value_within_marks_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _CountedSearches(xml_calls._VALUE_END)
    monkeypatch.setattr(xml_calls, "_VALUE_END", counted)
    lines = [f"line {i} of a file < and </para, which has a hundred characters or so in it, {'x' * 30}\n" for i in range(200)]
    found = split(X, ["<function=get_weather><parameter=city>", *lines, "</parameter></function>"])
    assert parts_of(found) == [("get_weather", json.dumps({"city": "".join(lines).removesuffix("\n")}))]
    assert counted.n_read <= 2 * sum(map(len, lines))


@pytest.mark.parametrize("dialect", [H, L])
@pytest.mark.parametrize(
    ("begin", "more", "end"), [("{", "\n  ", "}"), ('{"name', "less", '": 1}'), ('{"type":', "\n  ", " 2}")]
)
def test_what_may_be_a_call_without_an_end_is_read_once(
    monkeypatch: pytest.MonkeyPatch, dialect: Dialect, begin: str, more: str, end: str
) -> None:
    head, key = _CountedSearches(json_calls._HEAD), _CountedSearches(json_calls._FIRST_KEY)
    monkeypatch.setattr(json_calls, "_HEAD", head)
    monkeypatch.setattr(json_calls, "_FIRST_KEY", key)
    parts = ["<tool_call>" if dialect is H else "", begin, *[more] * 500, end]
    assert split(dialect, parts) == [(Channel.CONTENT, "".join(parts))]
    assert max(head.n_read, key.n_read) <= 3 * len("".join(parts))


class _CountedContent(Hermes):
    """Counts the characters that it has to look at in the content."""

    n_read = 0

    def _read_content(self) -> bool:
        self.n_read += len(self.held)
        return super()._read_content()


@pytest.mark.parametrize("end", ["and more", "<tool_call", ""])
def test_blanks_without_an_end_are_read_once(end: str) -> None:
    splitter = _CountedContent(NAMES)
    pieces = [piece for part in ["text", *["\n  "] * 500, end] for piece in splitter.push(part)] + splitter.flush()
    assert "".join(piece.text for piece in pieces) == "text" + "\n  " * 500 + end
    assert splitter.n_read <= 3 * 1600


def test_only_the_first_calls_are_shown() -> None:
    text = "[now(), now(), now()] end"
    assert parts_of(split(P, list(text), most_calls=1)) == [NOW, "end"]


def test_half_of_a_character_and_infinities_do_no_harm() -> None:
    (call,) = parts_of(split(H, ['<tool_call>{"arguments": {"a": "\\ud83d"}, "name": "now"}']))
    assert call == ("now", '{"a": "\\ud83d"}')
    assert split(H, ['<tool_call>{"arguments": {"a": Infinity}, "name": "now"}'])[0][0] is Channel.CONTENT


WORDS = [
    *("<tool_call>", "</tool_call>", '{"name": "now", "arguments": ', "{}", "}", "[", "]", "{", '"', "\\", ",", "; ", "now"),
    *("(", ")", "a=1", "[TOOL_CALLS]", "[ARGS]", "<function=now>", "<parameter=a>", "</parameter>", "</function>"),
    *("\n", " ", "text"),
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(Dialect))
def test_what_is_found_does_not_depend_on_cuts(words: list[str], dialect: Dialect) -> None:
    text = "".join(words)
    assert split(dialect, words) == split(dialect, list(text)) == split(dialect, [text])


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        ('{{ \'<tool_call>\\n{"name": "\' }}', H),
        ("<tool_call><function=example><parameter=a>", X),
        ("{{ '[TOOL_CALLS]' }}", M),
        ("[func_name1(params_name1=params_value1, ...)]", P),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', L),
        ("{{ '<|python_tag|>' }}", L),
        ("{{ message.content }}", H),
    ],
)
def test_the_template_tells_the_dialect(source: str, dialect: Dialect) -> None:
    assert dialect_of(source) is dialect
