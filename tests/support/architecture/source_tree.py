"""The product's source files as syntax trees, and what each of them imports. Read as text; nothing is run."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

REPO = Path(__file__).parents[3]
PRODUCT = ("messages", "actors", "gpu_workers", "supervisor")


@dataclass(frozen=True)
class SourceFile:
    """One file of the product."""

    path: str  # relative to the repository, with forward slashes
    module: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Is it an __init__.py?"""
        return self.path.endswith("__init__.py")

    @property
    def top(self) -> str:
        """The package of the product that it belongs to."""
        return self.module.partition(".")[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree. Many tests look at them, and a walk takes as long as to parse the file."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module named in an import statement, wherever it stands; `from a import b` names a and a.b."""
        names: set[str] = set()
        package = self.module if self.is_package else self.module.rpartition(".")[0]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = package.split(".")
                    base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
                names.add(base)
                names.update(f"{base}.{alias.name}" for alias in node.names)
        return frozenset(names)


@contextmanager
def without_collections() -> Iterator[None]:
    """The garbage collector rests meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse(text: str) -> ast.Module:
    """The syntax tree of a file's text.

    The garbage collector rests meanwhile. A collection may end a forgotten task of an earlier test, whose traceback is then
    logged; tracebacks of Python 3.11 parse source lines too, and a parser inside another raises SystemError (CPython 106905).
    """
    with without_collections():
        return ast.parse(text)


def product_files() -> tuple[SourceFile, ...]:
    """All files of the product, in order of their paths."""
    return files_under(*PRODUCT)


def files_under(*folders: str) -> tuple[SourceFile, ...]:
    """All Python files under folders of the repository. A folder is read once."""
    return tuple(file for folder in folders for file in _files_of(folder))


@cache
def _files_of(folder: str) -> tuple[SourceFile, ...]:
    with without_collections():
        files = tuple(_read(path) for path in sorted((REPO / folder).rglob("*.py")))
        gc.freeze()  # millions of nodes, which stay to the end: every later collection would walk through them
    return files


@cache
def product_modules() -> frozenset[str]:
    """The dotted names of all modules of the product."""
    return frozenset(file.module for file in product_files())


def _read(path: Path) -> SourceFile:
    text = path.read_text(encoding="utf-8")
    parts = list(path.relative_to(REPO).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return SourceFile(path.relative_to(REPO).as_posix(), ".".join(parts), text, parse(text))
