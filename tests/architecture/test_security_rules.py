"""SECURITY.md names all 39 rules, and a test for each that is in force; the package holds what it should and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ops.doc_tables import REPO
from tests.support.architecture.source_tree import PRODUCT, product_files

N_RULES = 39
MOST_DEPENDENCIES = 24
BROUGHT_BY = {"triton": "torch", "packaging": "huggingface-hub"}  # whose interfaces have their types
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_rule_has_a_state_and_every_rule_in_force_a_test() -> None:
    text = (REPO / "SECURITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| (\w+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, N_RULES + 1))
    assert {state for _, state, _, _ in rows} == {"done", "refused"}
    assert [number for number, state, _, test in rows if state == "done" and "`tests/" not in test] == []
    tests = [name for *_, test in rows for name in re.findall(r"`(tests/[^`]+)`", test)]
    assert [name for name in tests if not (REPO / name).exists()] == []
    assert [number for number, state, why, _ in rows if state == "refused" and not why.strip()] == []


def test_the_wheel_holds_the_product_and_no_tests() -> None:
    packages = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert packages == ["messages*", "actors*", "gpu_workers*", "supervisor*"]


def test_dependencies_stay_few() -> None:
    assert len(PROJECT["project"]["dependencies"]) <= MOST_DEPENDENCIES


def test_what_the_product_imports_is_asked_for_by_name() -> None:
    """Or it belongs to the interface of a package that is."""
    project = PROJECT["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    asked = {canonicalize_name(Requirement(text).name) for text in listed}
    nodes = [node for file in product_files() for node in file.nodes]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - set(PRODUCT)
    packages, brought = packages_distributions(), {name for name, owner in BROUGHT_BY.items() if owner in asked}
    found = {module: {canonicalize_name(name) for name in packages.get(module, [module])} for module in modules - brought}
    assert {module: names for module, names in found.items() if not names & asked} == {}
    assert set(BROUGHT_BY) <= modules


def direct() -> list[Requirement]:
    """What is asked for by name."""
    project = PROJECT["project"]
    return [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["semantic"])]


def needed() -> set[str]:
    """Every package that the product needs in this environment, also indirectly, and with answers to similar questions."""
    todo, found = direct(), set[str]()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if name in found or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        try:
            todo += [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue
        found.add(name)
    return found


def test_every_package_has_one_version_and_each_direct_one_is_allowed() -> None:
    lines = (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    refused = [str(one) for one in direct() if versions.get(canonicalize_name(one.name), "0") not in one.specifier]
    assert refused == [], "constraints.txt has another version"
    of_platform = {name for name in needed() if name.startswith(("nvidia-", "triton", "cuda-"))}  # what torch needs on GPUs
    assert needed() - of_platform - versions.keys() == set()
