"""The layout of the folders: none is crowded, and no package of the product is part of an import circle."""

from __future__ import annotations

import ast
from collections import Counter

from tests.support.architecture.source_tree import PRODUCT, SourceFile, files_under, product_files, product_modules

MAX_FILES_IN_FOLDER = 16


def test_a_folder_holds_at_most_sixteen_files() -> None:
    counts = Counter(file.path.rpartition("/")[0] for file in product_files() + files_under("ops", "tests"))
    assert {folder: n for folder, n in counts.items() if n > MAX_FILES_IN_FOLDER} == {}


def test_no_two_classes_have_one_name() -> None:
    """Who searches for a class finds one."""
    places: dict[str, list[str]] = {}
    for file in product_files() + files_under("ops"):
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(file.path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_test_module_imports_from_another() -> None:
    """What tests share lies under tests/support. Only tests/gpu takes tests of the CPU, to run them with its own fixtures."""
    test_modules = frozenset(file.module for file in files_under("tests") if is_test(file.module))
    found = {file.path: imported_test_modules(file, test_modules) for file in files_under("tests")}
    assert {path: modules for path, modules in found.items() if modules} == {}


def imported_test_modules(file: SourceFile, test_modules: frozenset[str]) -> frozenset[str]:
    """The test modules that a file imports from. Of a file in tests/gpu only those that it takes more than tests from."""
    modules = file.imports & test_modules
    if not file.path.startswith("tests/gpu/"):
        return modules
    return modules & {name.rpartition(".")[0] for name in file.imports if not is_test(name)}


def is_test(dotted_name: str) -> bool:
    """Is this the name of a test module, or of a test function?"""
    return dotted_name.rpartition(".")[2].startswith("test_")


def test_no_sub_packages_import_each_other_in_a_circle() -> None:
    circles = {package: find_circle(boxes_of(package)) for package in packages()}
    assert {package: circle for package, circle in circles.items() if circle} == {}


def test_the_search_finds_a_circle() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def packages() -> list[str]:
    """Every package of the product, by dotted name."""
    return [file.module for file in product_files() if file.is_package]


def boxes_of(package: str) -> dict[str, set[str]]:
    """What each direct member of a package (a file, or a sub-package as a whole) imports of the others."""
    arrows: dict[str, set[str]] = {}
    for file in product_files():
        box = member(package, file.module)
        if box:
            imported = {member(package, name) for name in file.imports if name in product_modules()}
            arrows.setdefault(box, set()).update(imported - {box, ""})
    return arrows


def member(package: str, module: str) -> str:
    """The direct member of `package` that `module` is, or lies in; empty for the package itself and for strangers."""
    return module.removeprefix(f"{package}.").partition(".")[0] if module.startswith(f"{package}.") else ""


def find_circle(arrows: dict[str, set[str]]) -> list[str]:
    """One circle of arrows, with its first box again at the end; empty if there is none."""
    done: set[str] = set()

    def walk(box: str, path: list[str]) -> list[str]:
        if box in path:
            return [*path[path.index(box) :], box]
        if box in done:
            return []
        for other in sorted(arrows.get(box, ())):
            if found := walk(other, [*path, box]):
                return found
        done.add(box)
        return []

    return next((found for box in sorted(arrows) if (found := walk(box, []))), [])


def test_every_package_of_the_product_is_looked_at() -> None:
    assert set(PRODUCT) <= set(packages())


def test_tests_lie_in_the_folders_of_what_they_test() -> None:
    """tests/actors/pages/test_lfu.py tests actors/pages/lfu.py. A test of a whole package may have a name of its own."""
    packages_with_tests = {folder_of(file) for file in mirrored_tests()}
    known = {file.module for file in product_files() + files_under("ops") if file.is_package}
    assert packages_with_tests - known == set()
    assert [file.path for file in mirrored_tests() if is_elsewhere(file)] == []


def mirrored_tests() -> list[SourceFile]:
    """The test files in the folders of packages: not those that need whole servers, a GPU, or minutes."""
    files = [file for file in files_under("tests") if file.path.split("/")[1] in (*PRODUCT, "ops")]
    return [file for file in files if is_test(file.module)]


def folder_of(test: SourceFile) -> str:
    """The package whose folder a test file mirrors."""
    return test.module.partition(".")[2].rpartition(".")[0]


def is_elsewhere(test: SourceFile) -> bool:
    """Is it called after a file of another package, and neither after its own package nor after a file of it?"""
    name = test.module.rpartition(".")[2].removeprefix("test_")
    files = [file for file in product_files() + files_under("ops") if not file.is_package]
    homes = {file.module.rpartition(".")[0] for file in files if file.module.endswith(f".{name}")}
    return bool(homes) and folder_of(test) not in homes and not folder_of(test).endswith(f".{name}")
