"""A character that no token has is found before anything is computed, wherever a schema fixes it; others pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from actors.gateway.admission.unwritable import check_characters
from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.tools.offered import OfferedTools, Tool
from messages.generation.grammar import Grammar, GrammarKind

MISSING = frozenset({0x04, 0xC0, 0xF1})
BAD, GOOD = "\U0004931e", "\U0001f600"  # F1 89 8C 9E and F0 9F 98 80


def in_each_place(text: str) -> list[dict[str, Any]]:
    """Schemas that fix a text, as a value or as a name."""
    value: list[dict[str, Any]] = [{"const": text}, {"enum": [1, text]}, {"const": {"a": [text]}}, {"properties": {text: {}}}]
    inside = [{"type": "array", "items": value[0]}, {"anyOf": [{"type": "null"}, value[1]]}, {"$defs": {"d": value[2]}}]
    return [*value, *inside]


@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_value_or_name_without_tokens_is_refused(is_ascii: bool) -> None:
    for text, error in ((BAD, r"U\+4931E"), (GOOD, ""), ("\x04 plain", "")):
        for schema in in_each_place(text):
            grammar = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema, ensure_ascii=is_ascii))
            offered = OfferedTools(tools=(Tool("f", schema),), callable_names=("f",))
            check_characters(grammar, offered, frozenset())
            for wanted, tools in ((grammar, None), (None, offered)):
                if error:
                    with pytest.raises(GrammarError, match=error):
                        check_characters(wanted, tools, MISSING)
                else:
                    check_characters(wanted, tools, MISSING)


def test_choices_and_what_is_no_json() -> None:
    with pytest.raises(GrammarError, match=r"U\+4931E"):
        check_characters(Grammar(kind=GrammarKind.CHOICE, text=json.dumps(["a", BAD])), None, MISSING)
    for kind, text in (
        (GrammarKind.JSON_SCHEMA, f"{{{BAD}"),
        (GrammarKind.REGEX, f"[^{BAD}]"),
        (GrammarKind.JSON_SCHEMA, "[]é"),
    ):
        check_characters(Grammar(kind=kind, text=text), None, MISSING)
    deep = '{"items":' * 9000 + '{"const": "é"}' + "}" * 9000
    check_characters(Grammar(kind=GrammarKind.JSON_SCHEMA, text=deep), None, MISSING)
    described = {"description": BAD, "pattern": BAD, "type": "string"}
    check_characters(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(described)), None, MISSING)


@pytest.mark.parametrize("left_out", [(), (0xF1, 0xF2)])
def test_a_byte_level_vocabulary_tells_what_it_lacks(tmp_path: Path, left_out: tuple[int, ...]) -> None:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(0x100) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + at) for at, byte in enumerate(moved)}
    ids = {character: byte for byte, character in characters.items() if byte not in left_out}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert FolderText(tmp_path, tokenizer).missing_bytes == frozenset(left_out)
