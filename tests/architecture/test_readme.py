"""The README tells the truth: its tables are the code's, its map names every file, and what it points at exists."""

from __future__ import annotations

import re

import pytest

from ops import readme_tables
from ops.readme_tables import README, REPO, first_sentence
from tests.architecture.source_tree import product_files

TEXT = README.read_text(encoding="utf-8")


def block(name: str) -> str:
    """What stands between a pair of markers."""
    return TEXT.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]


@pytest.mark.parametrize("name", list(readme_tables.TABLES))
def test_a_table_is_what_the_code_draws(name: str) -> None:
    assert block(name).strip() == readme_tables.TABLES[name](), "run python -m ops.readme_tables"


def test_the_map_names_every_file_of_the_product_with_a_phrase() -> None:
    phrases = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", block("files"), re.MULTILINE))
    missing = [file.path for file in product_files() if not file.is_package and not phrases.get(file.path, "").strip()]
    assert missing == []


def test_what_it_points_at_exists() -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", TEXT)
    paths = re.findall(r"`((?:messages|actors|gpu_workers|supervisor|ops|tests|docs)/[\w./-]+)`", TEXT)
    assert [path for path in (*links, *paths) if not (REPO / path).exists()] == []


def test_a_first_sentence_ends_at_its_full_stop() -> None:
    assert first_sentence("One thing.\n\nMore.") == "One thing"
    assert first_sentence("Reads x.toml and y. Never writes.") == "Reads x.toml and y"
    assert first_sentence("Is it\n    long? Yes.") == "Is it long?"
