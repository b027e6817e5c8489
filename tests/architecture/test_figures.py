"""The table of today's figures repeats what is measured elsewhere in the documents, with its conditions and its command."""

from __future__ import annotations

import re

import pytest

from ops.doc_tables import REPO

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
_PAGES = ("performance", "performance_gpus", "performance_cpus", "reliability", "caching", "overload", "monitoring", "page")
_OTHERS = ("commands", "getting_started")


def numbers(text: str) -> set[str]:
    """The numbers of a text, without those of its links."""
    return {number.rstrip(",") for number in _NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", text))}


def today_and_the_rest() -> tuple[str, str]:
    """The section of today's figures, and the text of all places that they may come from."""
    text = {name: (REPO / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in (*_PAGES, *_OTHERS)}
    before, _, after = text.pop("performance").partition("\n## Today\n")
    today, _, below = after.partition("\n## ")
    assert before
    assert below, "docs/performance.md has a section Today, and sections below it"
    return today, "\n".join((below, *text.values()))


def measured_cells(section: str) -> list[str]:
    """The cells of its tables, but for columns of ratios, which are computed from the cells beside them."""
    cells, ratios = [], set[int]()
    for line, below in zip(section.splitlines(), [*section.splitlines()[1:], ""], strict=True):
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if below.startswith("|---"):
            ratios = {index for index, title in enumerate(row) if title == "ratio"}
        cells += [cell for index, cell in enumerate(row) if index not in ratios]
    return cells


def test_each_figure_of_today_stands_in_a_section_that_says_how_it_was_measured() -> None:
    today, rest = today_and_the_rest()
    known = numbers(rest)
    cells = measured_cells(today)
    assert len(cells) > 400
    assert {cell: missing for cell in cells if (missing := numbers(cell) - known)} == {}


@pytest.mark.parametrize(
    ("section", "cells"),
    [
        ("| a | ratio |\n|---|---|\n| 1.5 | 2.0 |\n", ["a", "---", "1.5"]),
        ("text\n\n| b | of |\n|---|---|\n| 3 | [day 4](x.md#a-5) |\n", ["b", "of", "---", "---", "3", "[day 4](x.md#a-5)"]),
    ],
)
def test_cells_are_those_of_tables_without_ratios(section: str, cells: list[str]) -> None:
    assert measured_cells(section) == cells


def test_numbers_of_links_do_not_count() -> None:
    assert numbers("[2026-11-28](page.md#a-64) 1,234 and 0.5 %") == {"2026", "11", "28", "1,234", "0.5"}
