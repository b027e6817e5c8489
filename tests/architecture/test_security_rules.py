"""SECURITY.md names all 39 rules, and a test for each that is in force; the package holds what it should and nothing else."""

from __future__ import annotations

import re
import tomllib

from ops.doc_tables import REPO

N_RULES = 39
MOST_DEPENDENCIES = 23
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_rule_has_a_state_and_every_rule_in_force_a_test() -> None:
    text = (REPO / "SECURITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| (\w+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, N_RULES + 1))
    assert {state for _, state, _, _ in rows} == {"done", "part", "refused"}
    assert [number for number, state, _, test in rows if state == "done" and "`tests/" not in test] == []
    tests = [name for *_, test in rows for name in re.findall(r"`(tests/[^`]+)`", test)]
    assert [name for name in tests if not (REPO / name).exists()] == []
    assert [number for number, state, why, _ in rows if state in ("part", "refused") and not why.strip()] == []


def test_the_wheel_holds_the_product_and_no_tests() -> None:
    packages = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert packages == ["messages*", "actors*", "gpu_workers*", "supervisor*"]


def test_dependencies_stay_few() -> None:
    assert len(PROJECT["project"]["dependencies"]) <= MOST_DEPENDENCIES
