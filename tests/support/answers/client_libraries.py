"""The client libraries of other projects, imported when a test uses them.

Every test process collects all tests, also those that it does not run, and these libraries took a third of that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _ImportedAtUse:
    """A module that is imported when the first of its names is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pytest asks of everything that it finds in a module
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import anthropic
    import ollama
    import openai
else:
    anthropic, ollama, openai = map(_ImportedAtUse, ("anthropic", "ollama", "openai"))

__all__ = ["anthropic", "ollama", "openai"]
