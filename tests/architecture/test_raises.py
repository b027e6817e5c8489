"""A public function that raises an error of its own names it in its docstring: `Raises: WireError when ...`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.architecture.source_tree import product_files

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_a_public_function_names_the_errors_that_it_raises() -> None:
    silent = [
        f"{file.path}:{function.lineno} {function.name}: {', '.join(sorted(missing))}"
        for file in product_files()
        for function, docstrings in public_functions(file.tree)
        if (missing := {name for name in raised_by(function) if not any(names(text, name) for text in docstrings)})
    ]
    assert silent == []


def names(docstring: str, error: str) -> bool:
    """Does a docstring say that this error is raised? A function that makes the error counts as any error."""
    _, found, raises = docstring.partition("Raises")
    return bool(found) and (error in raises or not error[0].isupper())


def public_functions(tree: ast.Module) -> Iterator[tuple[Function, list[str]]]:
    """Public functions, and public methods of public classes, each with its docstring and those of its protocols."""
    for node in tree.body:
        if isinstance(node, Function) and is_public(node.name):
            yield node, [ast.get_docstring(node) or ""]
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            for method in node.body:
                if isinstance(method, Function) and is_public(method.name):
                    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                    inherited = [doc for base in bases for doc in docstrings_of_methods().get((base, method.name), [])]
                    yield method, [ast.get_docstring(method) or "", *inherited]


def is_public(name: str) -> bool:
    """Is it meant for other files?"""
    return not name.startswith("_")


@cache
def docstrings_of_methods() -> dict[tuple[str, str], list[str]]:
    """(class, method) -> docstrings, of all classes of the product."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in product_files():
        for node in file.nodes:
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, Function):
                        found.setdefault((node.name, method.name), []).append(ast.get_docstring(method) or "")
    return found


def raised_by(function: Function) -> set[str]:
    """The errors that leave a function, by name, from its own `raise` statements.

    Left out: an error that is only passed on, one that the function catches itself, and AssertionError, which is a bug.
    """
    found: set[str] = set()

    def walk(node: ast.AST, caught: frozenset[str]) -> None:
        if isinstance(node, Function | ast.Lambda | ast.ClassDef) and node is not function:
            return
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call | ast.Name | ast.Attribute):
            error = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc).rpartition(".")[2]
            if error not in caught | {"AssertionError"} and not isinstance(node.exc, ast.Name):
                found.add(error)
        if isinstance(node, ast.Try):
            inner = caught | {name for handler in node.handlers for name in caught_by(handler)}
            for child in node.body:
                walk(child, inner)
            for child in [*node.handlers, *node.orelse, *node.finalbody]:
                walk(child, caught)
            return
        for child in ast.iter_child_nodes(node):
            walk(child, caught)

    walk(function, frozenset())
    return found


def caught_by(handler: ast.ExceptHandler) -> set[str]:
    """The names of the errors that a handler catches."""
    if handler.type is None:
        return set()
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind).rpartition(".")[2] for kind in types}


def test_what_leaves_a_function_is_found() -> None:
    (function,) = ast.parse(
        "def f():\n try:\n  raise Kept()\n except Kept:\n  raise Left() from None\n"
        " if 1: raise AssertionError('bug')\n def g(): raise Inner()\n try:\n  pass\n except OSError:\n  raise\n"
    ).body
    assert isinstance(function, ast.FunctionDef)
    assert raised_by(function) == {"Left"}
    assert names("Do it. Raises: Left when it is gone.", "Left")
    assert not names("Do it. Left alone.", "Left")
