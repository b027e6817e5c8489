"""The bill of materials is not believed before every direct dependency is in it; advisories are asked for what it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.bill_of_materials import COPIES, main, missing_from, pins_of, versions_in, with_copies
from ops.doc_tables import REPO

PYPROJECT = '[project]\ndependencies = ["msgspec>=0.20,<0.23", "Jinja2", "huggingface-hub>=1.0,<3"]\n'


def bill(**versions: str) -> str:
    """One with these packages; the underscores of their names are points."""
    components = [{"name": name.replace("_", "."), "version": version} for name, version in versions.items()]
    return json.dumps({"bomFormat": "CycloneDX", "components": components})


def test_names_are_compared_as_registries_do() -> None:
    assert missing_from(versions_in(bill(msgspec="0.20.0", jinja2="3.1", Huggingface_Hub="1.2")), PYPROJECT) == []


def test_a_dependency_without_a_version_is_missing() -> None:
    assert missing_from(versions_in(bill(msgspec="0.20.0", jinja2="")), PYPROJECT) == ["jinja2", "huggingface-hub"]


def test_the_mark_of_a_build_is_left_out() -> None:
    assert pins_of(versions_in(bill(torch="2.13.0+cpu", click="8.1", ours=""))) == ["click==8.1", "torch==2.13.0"]


def test_copies_of_other_projects_are_in_it_and_no_package_of_python() -> None:
    whole = with_copies(bill(click="8.1"), REPO)
    found = {one["name"]: one for one in json.loads(whole)["components"]}
    assert {"click", *(copy.name for copy in COPIES)} == set(found)
    assert all(found[copy.name]["licenses"] and found[copy.name]["hashes"][0]["content"] for copy in COPIES)
    assert pins_of(versions_in(whole)) == ["click==8.1"]


def test_every_copied_program_has_its_version_in_it_and_its_licence_beside_it() -> None:
    vendored = sorted(path for path in (REPO / "actors").rglob("vendor/*.js"))
    assert [str(path.relative_to(REPO)) for path in vendored] == [copy.path for copy in COPIES]
    for copy, path in zip(COPIES, vendored, strict=True):
        assert copy.version in path.read_text(encoding="utf-8")[:200], "the head of the file names its version"
        assert list(path.parent.glob("LICENSE.*"))


def test_another_document_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a CycloneDX document"):
        versions_in("[]")


def test_the_command_fails_without_our_dependencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sbom").write_text(bill(click="8.1"))
    monkeypatch.chdir(REPO)
    assert main([str(tmp_path / "sbom")]) == 1
    assert "msgspec" in capsys.readouterr().err


def test_a_package_about_which_nobody_answers_is_no_success() -> None:
    """Without --strict pip-audit passes over packages that its service does not know, and over a service that is away."""
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    assert "pip-audit --strict" in makefile
