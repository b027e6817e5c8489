"""The glossary is short and complete: each word once, with the field's word and one sentence."""

from __future__ import annotations

import re

from ops.doc_tables import REPO


def rows() -> list[list[str]]:
    """The cells of every word."""
    lines = (REPO / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "word"]


def test_it_is_short_enough_to_be_read() -> None:
    assert 25 <= len(rows()) <= 40


def test_each_word_stands_once_with_one_sentence() -> None:
    words = [row[0] for row in rows()]
    assert len(set(words)) == len(words)
    for word, field_word, meaning in rows():
        assert field_word, word
        assert re.fullmatch(r"(\*Planned\.\* )?[A-Z][^.]*(\.py[^.]*|0\.1b?[^.]*)*\.", meaning), word
