"""`supervisor config files`: what is listed, written, kept and refused."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from supervisor.__main__ import main

CHECKOUT = Path(__file__).parents[3] / "ops" / "compose" / "compose.yaml"


def call(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["config", "files", *arguments])


def test_the_files_are_listed_without_a_directory() -> None:
    names = call().stdout.splitlines()
    assert {"systemd/tardigrade.service", "prometheus/prometheus.yml"} <= set(names)
    assert [name for name in names if name.endswith(".py") or name.startswith(("bench/", "gpu/"))] == ["docker/trim.py"]
    assert call("--only", "systemd").stdout.splitlines() == [name for name in names if name.startswith("systemd/")]


def test_a_unit_names_the_programs_of_this_installation(tmp_path: Path) -> None:
    call(str(tmp_path / "new"), "--only", "systemd")
    unit = (tmp_path / "new" / "systemd" / "tardigrade.service").read_text()
    assert f"ExecStart={Path(sys.executable).parent}/supervisor start" in unit


def test_compose_builds_an_image_of_this_release_where_no_checkout_is(tmp_path: Path) -> None:
    """What the server is built from is among the files that were written, and lets nothing but a wheel through to the build."""
    call(str(tmp_path))
    text = (tmp_path / "compose" / "compose.yaml").read_text()
    written, here = (pytest.importorskip("yaml").safe_load(part) for part in (text, CHECKOUT.read_text()))
    build = written["services"]["server"].pop("build")
    here["services"]["server"].pop("build")
    assert written == here
    assert build == {"context": "../docker", "args": {"PACKAGE": f"tardigrade-serve=={version('tardigrade-serve')}"}}
    dockerfile = (CHECKOUT.parent / build["context"] / "Dockerfile").read_bytes()
    assert (tmp_path / "compose" / build["context"] / "Dockerfile").read_bytes() == dockerfile
    assert (tmp_path / "docker" / "Dockerfile.dockerignore").is_file()
    assert "docker compose -f compose/compose.yaml up --build" in text


def test_files_that_an_operator_has_changed_are_kept(tmp_path: Path) -> None:
    call(str(tmp_path), "--only", "prometheus")
    changed, gone = tmp_path / "prometheus" / "prometheus.yml", tmp_path / "prometheus" / "alertmanager.yml"
    own = changed.read_bytes()
    changed.write_text("mine")
    gone.unlink()
    refused = call(str(tmp_path), "--only", "prometheus")
    assert (refused.exit_code, changed.read_text(), gone.exists()) == (2, "mine", False)
    assert f"expected no other files in {tmp_path}, got {changed}; --force writes over them" in refused.stderr
    forced = call(str(tmp_path), "--only", "prometheus", "--force")
    assert (forced.exit_code, changed.read_bytes(), gone.exists()) == (0, own, True)
    assert "2 files written, 1 were there" in forced.stderr


def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "systemd").write_text("a file")
    for arguments in (("--only", "sytemd"), (str(tmp_path), "--only", "systemd")):
        refused = call(*arguments)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
