"""What is checked by pyright, and what is not."""

from __future__ import annotations

import tomllib

from tests.support.architecture.source_tree import REPO


def test_the_types_of_transformers_are_not_read() -> None:
    """They would take almost half of the processor time of all types."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["pyright"]
    assert (REPO / settings["stubPath"] / "transformers" / "__init__.pyi").is_file()
