"""Limits of files and functions, docstrings that say what a file is for, and no unfinished code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

from tests.support.architecture.source_tree import SourceFile, files_under, product_files

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 10  # self included
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc", "base"}
HALF_DONE = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")


def every_file() -> tuple[SourceFile, ...]:
    """All Python files of the repository."""
    return product_files() + files_under("ops", "tests")


def functions(file: SourceFile) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    return (node for node in file.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Is it compiled for a device?"""
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_a_file_holds_one_concept() -> None:
    sizes = {file.path: file.text.count("\n") for file in every_file()}
    assert {path: lines for path, lines in sizes.items() if lines > MAX_FILE_LINES} == {}


def test_a_function_fits_on_a_page() -> None:
    """Kernels apart: a kernel is one loop nest, and parts of it cannot be called."""
    sizes = {
        f"{file.path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file in every_file()
        for node in functions(file)
        if not is_kernel(node)
    }
    assert {name: lines for name, lines in sizes.items() if lines > MAX_FUNCTION_LINES} == {}


def test_many_parameters_are_a_missing_dataclass() -> None:
    """Kernels apart: what runs on a device takes its pointers and strides one by one."""
    counts = {
        f"{file.path}:{node.lineno} {node.name}": len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
        for file in product_files()
        for node in functions(file)
        if not is_kernel(node)
    }
    assert {name: count for name, count in counts.items() if count > MAX_PARAMETERS} == {}


def test_the_first_line_says_what_the_file_is_for() -> None:
    files_with_text = [file for file in every_file() if file.text.strip()]
    assert [file.path for file in files_with_text if not file.text.startswith('"""')] == []
    assert [file.path for file in files_with_text if len((ast.get_docstring(file.tree) or "").split()) < 4] == []


def test_nothing_is_left_half_done() -> None:
    hits = {file.path: HALF_DONE.search(file.text) for file in product_files()}
    assert {path: hit for path, hit in hits.items() if hit} == {}


def test_names_say_something() -> None:
    assert [file.path for file in product_files() if PurePath(file.path).stem in VAGUE_NAMES] == []


def test_no_text_is_run_as_code() -> None:
    calls = [
        f"{file.path}:{node.lineno}"
        for file in product_files()
        for node in file.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")
    ]
    assert calls == []


def test_every_public_class_and_function_says_what_it_is_for() -> None:
    """Those of a module; a method's meaning is often its protocol's."""
    silent = [
        f"{file.path}:{node.lineno} {node.name}"
        for file in product_files()
        for node in file.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_a_docstring_says_more_than_where_to_look() -> None:
    """Whoever reads a method at its own place learns what it does there."""
    owners = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    pointers = [
        f"{file.path}:{node.lineno} {node.name}"
        for file in every_file()
        for node in file.nodes
        if isinstance(node, owners) and (ast.get_docstring(node) or "").startswith("See ")
    ]
    assert pointers == []
