"""The documents tell the truth: tables are the code's, the map names every file, and what they point at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ops import doc_tables
from ops.config_tables import settings_tables
from ops.doc_tables import REPO, TABLES, first_sentence
from ops.migration_tables import foreign_commands_table, foreign_flags_table
from tests.support.architecture.source_tree import product_files

MAX_PARAGRAPH_CHARACTERS = 600
DOCUMENTS = sorted([*REPO.glob("*.md"), *(REPO / "docs").glob("*.md")])


@pytest.mark.parametrize("document", sorted({table.document for table in TABLES.values()}), ids=lambda path: path.name)
def test_a_table_is_what_the_code_draws(document: Path) -> None:
    assert document.read_text(encoding="utf-8") == doc_tables.redraw(document), "run python -m ops.doc_tables"


def test_the_map_names_every_file_of_the_product_with_a_phrase() -> None:
    text = TABLES["files"].document.read_text(encoding="utf-8")
    phrases = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE))
    missing = [file.path for file in product_files() if not file.is_package and not phrases.get(file.path, "").strip()]
    assert missing == []


def test_every_key_of_the_configuration_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", settings_tables(), re.MULTILINE)
    assert {"model", "beat_s", "max_n", "kv_memory_bytes"} <= {key for key, _ in rows}
    assert [key for key, meaning in rows if not meaning.strip()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_points_at_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [document.parent / link for link in re.findall(r"\]\((?!http|#)([^)#]+)", text)]
    paths = [
        REPO / path for path in re.findall(r"`((?:messages|actors|gpu_workers|supervisor|ops|tests|docs)/[\w./-]+)`", text)
    ]
    log = document.name in ("log.md", "CHANGELOG.md")  # the past may name what has gone
    assert [str(path) for path in [*links, *([] if log else paths)] if not path.exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_paragraph_is_short(document: Path) -> None:
    """Rows of tables apart. What was so before stands in the change log and in the log of experiments alone."""
    text = document.read_text(encoding="utf-8")
    long = [line[:60] for line in text.splitlines() if len(line) > MAX_PARAGRAPH_CHARACTERS and not line.startswith("|")]
    assert long == [], f"more than {MAX_PARAGRAPH_CHARACTERS} characters"
    assert document.name != "reliability.md" or "(before: " not in text


def test_a_question_of_a_newcomer_is_answered_by_at_most_three_files() -> None:
    text = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = text.partition("## Where to find what")[2].partition("\n## ")[0]
    files = {line: re.findall(r"`([^`]+\.py)`", line) for line in walk.splitlines() if "? |" in line}
    assert len(files) >= 9
    assert {line: named for line, named in files.items() if not 1 <= len(named) <= 3} == {}


def test_a_visitor_reads_the_readme_to_its_end() -> None:
    text = (REPO / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9 * 1024


def test_a_first_sentence_ends_at_its_full_stop() -> None:
    assert first_sentence("One thing.\n\nMore.") == "One thing"
    assert first_sentence("Reads x.toml and y. Never writes.") == "Reads x.toml and y"
    assert first_sentence("Is it\n    long? Yes.") == "Is it long?"


@pytest.mark.parametrize(
    "code",
    [
        "supervisor keys add --tenant NAME",
        "supervisor cache reset",
        "supervisor check-config",
        "supervisor stop",
        "--log-format json",
    ],
)
def test_a_command_in_a_table_for_users_of_other_servers_is_one_piece_of_code(code: str) -> None:
    assert f"`{code}`" in foreign_commands_table() + foreign_flags_table()
