"""The recipes of CONTRIBUTING.md keep their promise: what was added by one of them stands in no more files than it says."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.architecture.source_tree import REPO, product_files

_NUMBERS = {"two": 2, "four": 4, "seven": 7}
_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    ("example", "word", "pattern"),
    [
        ("`min_p`, four product files", "min_p", r"\bmin_p\b"),
        (
            "`deadline_s`, seven product files",
            "deadline_s",
            r"\bterms\.deadline_s\b|'deadline_s'(?!, type=)|\bdeadline_s: DeadlineS\b",
        ),
        ("`min_tokens`, four product files", "min_tokens", r"\bmin_tokens\b"),
        ("`/tokenize`, two product files", "tokenize", r"'/tokenize'|\bendpoints import .*\btokenize\b"),
        ("Phi-3, two product files", "phi3", r"phi3"),
        ("FIFO, two product files", "fifo", r"(?<!s_is)fifo(?!': 'fcfs')"),
    ],
    ids=["min_p", "deadline_s", "min_tokens", "tokenize", "phi3", "fifo"],
)
def test_an_example_stands_in_as_many_files_as_its_recipe_says(example: str, word: str, pattern: str) -> None:
    """word: is in the text of each of these files; pattern: of their code, upper case or lower case. Flags of commands, which
    have a type, are no terms of requests; what other servers call a policy is no policy."""
    assert f"(example: {example})" in (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    number = _NUMBERS[example.partition(", ")[2].partition(" ")[0]]
    found = [
        file.path
        for file in product_files()
        if word in file.text.lower() and re.search(pattern, code_of(file.tree), re.IGNORECASE)
    ]
    assert len(found) == number, found


def code_of(tree: ast.Module) -> str:
    """A module as text without comments and docstrings."""
    owners = [node for node in ast.walk(tree) if isinstance(node, _HAVE_DOCSTRINGS) and ast.get_docstring(node) is not None]
    docstrings = [node.body[0] for node in owners]
    try:
        for node in owners:
            node.body[0] = ast.Pass()
        return ast.unparse(tree)
    finally:
        for node, docstring in zip(owners, docstrings, strict=True):  # all tests share the tree
            node.body[0] = docstring


def test_comments_and_docstrings_are_no_code() -> None:
    tree = ast.parse('"""Of fifo."""\ndef f():\n    """As fifo."""\n    return 1  # fifo\n')
    assert "fifo" not in code_of(tree)
    assert "fifo" in code_of(ast.parse("x = 'fifo'"))
