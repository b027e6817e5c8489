"""A class of the product that implements one of its Protocols names it in the class line, so that a search finds it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from tests.support.architecture.source_tree import product_files

_LEAST_METHODS = 2  # one common method name, such as `cancel`, is no sign of an implementation


@dataclass
class FoundClass:
    """One class of the product. `bases` are the last parts of the names in its class line."""

    name: str
    bases: list[str]
    methods: set[str] = field(default_factory=set)  # their signatures

    @property
    def is_protocol(self) -> bool:
        """Is it declared as a Protocol?"""
        return "Protocol" in self.bases


def test_every_implementer_of_a_protocol_names_it() -> None:
    assert unnamed(product_classes()) == []


def test_every_protocol_has_an_implementer_or_a_stand_in_of_a_library() -> None:
    classes = product_classes()
    named = {base for one in classes for base in one.bases}
    of_asyncio = {"Timer", "WriteBuffer"}  # its TimerHandle and Transport implement them
    assert {one.name for one in classes if one.is_protocol} - named <= of_asyncio


def test_the_search_finds_an_implementer_that_names_nothing() -> None:
    source = """
class Door(Protocol):
    def open(self): ...
    def close(self): ...
class Gate:
    def open(self): ...
    def close(self): ...
class Window:
    def open(self, width): ...
    def close(self): ...
class Named(Door):
    def open(self): ...
    def close(self): ...
class Heir(Named):
    def open(self): ...
    def close(self): ...
"""
    assert unnamed(classes_in(ast.parse(source))) == ["Gate has the methods of Door"]


def product_classes() -> list[FoundClass]:
    """Every class of the product that is declared at the top of a file."""
    return [one for file in product_files() for one in classes_in(file.tree)]


def classes_in(tree: ast.Module) -> list[FoundClass]:
    """The classes at the top of one file."""
    return [
        FoundClass(
            node.name,
            [last_name(base) for base in node.bases],
            {signature(item) for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)},
        )
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]


def signature(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The name of a method and of its parameters; a class with other ones does not implement the Protocol."""
    return f"{method.name}({', '.join(one.arg for one in method.args.args + method.args.kwonlyargs)})"


def last_name(base: ast.expr) -> str:
    """`a.b.C[T]` as "C"."""
    base = base.value if isinstance(base, ast.Subscript) else base
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def unnamed(classes: list[FoundClass]) -> list[str]:
    """The classes that have all methods of a Protocol but do not name it, not even through a base class."""
    by_name = {one.name: one for one in classes}
    found = []
    for protocol in classes:
        if protocol.is_protocol and len(protocol.methods) >= _LEAST_METHODS:
            found += [
                f"{one.name} has the methods of {protocol.name}"
                for one in classes
                if protocol.methods <= one.methods and protocol.name not in ancestors(one, by_name)
            ]
    return found


def ancestors(one: FoundClass, by_name: dict[str, FoundClass]) -> set[str]:
    """The names of a class and of all its base classes in the product."""
    names = {one.name}
    for base in one.bases:
        names |= {base} | (ancestors(by_name[base], by_name) if base in by_name else set())
    return names
