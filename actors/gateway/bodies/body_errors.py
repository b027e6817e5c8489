"""Explains what is wrong with a JSON body: the field, what was expected and what came, in the words of JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec

from actors.gateway.bodies.fields.foreign_fields import NEAR, name_here
from actors.gateway.requests.refusals import Refusal, json_text

# msgspec's messages, without the path at their end
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`$")
_EXPECTED = re.compile(r"Expected `([^`]*)`(?: of length ([<>]=) (\d+)| ([<>]=? \S+))?(?:, got `\w+`)?$")
_MALFORMED = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)$")
_SURROGATE = "surrogate pair"  # in msgspec's message about a character of which only one half was escaped
_HALF_AT_END = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\)[^\\]{0,5}\}\s*$")  # msgspec takes what follows it for missing
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}
_OTHERS = {bool: "true or false", dict: "an object"}  # what a field may be beside one of several texts
_REQUIRED = {  # the required fields of all bodies
    "messages": "a list of messages",
    "prompt": "text, token ids, or a list of either",
    "tokens": "a list of token ids",
}
_TAKEN_BY = {  # where a prompt of this form belongs
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "prompts": "/v1/batch",
    "tokens": "/v1/generate",
}
_IN_MESSAGES = ("system", "instructions")
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # as gzip and zstd begin
_MOST_NAME_CHARACTERS = 80
MOST_SHOWN = 12  # of known names in an error
_NOTHING = object()


def unreadable(error: Exception, raw: bytes | bytearray) -> Refusal:
    """The refusal of a body that is not JSON. `error`: what `msgspec.json` or the UTF-8 decoder raised for it."""
    malformed = _MALFORMED.match(str(error))
    if not raw:
        text = "a JSON object, got an empty body"
    elif raw.startswith(_COMPRESSED):
        text = "JSON, got compressed bytes; send it without Content-Encoding"
    elif isinstance(error, UnicodeDecodeError):
        text = "UTF-8, got other bytes"
    elif isinstance(error, RecursionError):
        text = "JSON, got lists or objects that are nested too deeply"
    elif _has_half(str(error), raw):
        text = "JSON with whole characters, got half of one (\\ud800 to \\udfff outside of a pair)"
    elif malformed:
        text = f"JSON, got malformed JSON at byte {malformed[2]}: {malformed[1]}"
    elif "truncated" in str(error):
        text = f"complete JSON, got JSON that ends at byte {len(raw)}"
    elif "out of range" in str(error):
        text = "JSON with numbers in the range of 64 bits, got a number outside of it"
    else:
        text = f"JSON, got other bytes: {error}"
    return Refusal("invalid", f"body: expected {text}")


def _has_half(words: str, raw: bytes | bytearray) -> bool:
    """True if an escape is half of a character. `words`: of msgspec's error."""
    return _SURROGATE in words or ("truncated" in words and _HALF_AT_END.search(raw[-_MOST_NAME_CHARACTERS:]) is not None)


def wrong_field(
    error: msgspec.ValidationError, body: dict[str, Any], kind: type[msgspec.Struct], unknown_names: Sequence[str] = ()
) -> Refusal:
    """The refusal of a body that is not a `kind`. `error`: what `msgspec.convert` raised for it. `unknown_names`: fields that
    were taken out of it; one of them may be a misspelt name of what is missing."""
    words, path = path_of(error)
    if unknown := _UNKNOWN.match(words):
        return _unknown(path, unknown[1], kind)
    if missing := _MISSING.match(words):
        name = f"{path}.{missing[1]}" if path else missing[1]
        close = get_close_matches(missing[1], [given[:_MOST_NAME_CHARACTERS] for given in unknown_names], n=1, cutoff=NEAR)
        got = f"nothing, and the unknown field {json_text(close[0])}" if close else "nothing"
        return _refusal(name, f"expected {_REQUIRED.get(missing[1], 'a value')}, got {got}")
    value = value_at(body, path)
    expected = _EXPECTED.match(words)
    if expected is None and (choices := _choices(kind, path)):
        return _refusal(path, f"expected {choices}, got {json_text(value)}")
    if expected is None:
        return _refusal(path, words if value is _NOTHING else f"{words}, got {json_text(value)}")
    kinds, order, length, bound = expected.groups()
    wanted = " or ".join(_KINDS.get(name, name) for name in kinds.split(" | ") if name != "null")
    if bound:
        wanted += f" {bound}"
    got = "something else" if value is _NOTHING else json_text(value)
    if length:
        unit = "characters" if kinds == "str" else "items"
        wanted += f" of at {'least' if order == '>=' else 'most'} {length} {unit if length != '1' else unit[:-1]}"
        got = f"{len(value)} {unit}" if isinstance(value, str | list) and value else got
    return _refusal(path, f"expected {wanted}, got {got}")


def path_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """The words of msgspec's error, and the path of the field at fault like `messages[0].role`, "" for the whole body."""
    words, _, rest = str(error).partition(" - at `$")
    path = rest.removesuffix("`").removeprefix(".").partition("[...]")[0]  # msgspec does not say which value of a map it is
    return words, path


def value_at(body: Any, path: str) -> Any:
    """The value at a path like `messages[0].role`; a private object if there is none."""
    for index, name in _STEP.findall(path):
        try:
            body = body[int(index)] if index else body[name]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return body


def _unknown(path: str, name: str, kind: type[msgspec.Struct]) -> Refusal:
    name = name[:_MOST_NAME_CHARACTERS]
    known = _fields_of(kind, path)
    close = get_close_matches(name, known, n=1, cutoff=NEAR)
    if not path and (own := name_here(name, known)):
        return _refusal(name, f"unknown field; expected {_in_place(name, own)} instead")
    hint = "GET /docs shows all fields" if len(known) > MOST_SHOWN else f"known fields are {', '.join(known)}"
    if close:
        hint = f"did you mean {close[0]}?"
    elif not path and name in _TAKEN_BY:
        hint = f"{_TAKEN_BY[name]} takes it"
    return _refusal(f"{path}.{name}" if path else name, f"unknown field; {hint}")


def _in_place(name: str, own: str) -> str:
    """What belongs into a body instead of the field `name` of another API, whose own name for it is `own`."""
    return 'messages with the role "system"' if own == "messages" and name in _IN_MESSAGES else own


def _fields_of(kind: type[msgspec.Struct], path: str) -> Sequence[str]:
    """The fields of the struct in field `path` of `kind`, or of `kind` itself if `path` is empty."""
    if not path:
        return kind.__struct_fields__
    types = [field.type for field in msgspec.structs.fields(kind) if field.name == path]
    inner = [some for kind_or_union in types for some in (get_args(kind_or_union) or (kind_or_union,))]
    return next((some.__struct_fields__ for some in inner if hasattr(some, "__struct_fields__")), ())


def _choices(kind: type[msgspec.Struct], path: str) -> str:
    """What the field `path` of `kind` may be, if it is one of several texts: `"low" or "high"`; "" for other fields."""
    kinds: Sequence[Any] = (kind,)
    for _, name in _STEP.findall(path):
        fields = [field for one in kinds if hasattr(one, "__struct_fields__") for field in msgspec.structs.fields(one)]
        types = [field.type for field in fields if field.name == name]
        kinds = [part for one in types for part in ((one,) if get_origin(one) is Literal else get_args(one) or (one,))]
    texts = [json_text(text) for one in kinds if get_origin(one) is Literal for text in get_args(one) if text]
    others = [words for one in kinds if (words := _OTHERS.get(get_origin(one) or one))]
    return " or ".join(texts + others) if texts else ""


def _refusal(field: str, text: str) -> Refusal:
    return Refusal("invalid", f"{field}: {text}" if field else text, field=field)
