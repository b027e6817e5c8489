"""The files for a machine with GPUs: formatted, and what its first start gets is drawn by Terraform where that is here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.server_config import load_config

FOLDER = Path(__file__).parents[2] / "ops" / "terraform"
UNIT = FOLDER.parent / "systemd" / "tardigrade.service"
VALUES = {"release": "tardigrade-serve==0.2.0", "model": "organisation/name", "volume": "vol0123"}
yaml: Any = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def terraform() -> str:
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("Terraform is not on this machine")
    return program


def drawn(terraform: str, folder: Path) -> str:
    """The text of cloud-init for a machine."""
    (folder / "service.tf").write_text(f'locals {{\n  service = file("{UNIT}")\n}}\n')
    values = ", ".join([*(f"{name} = {json.dumps(value)}" for name, value in VALUES.items()), "service = local.service"])
    expression = f'jsonencode(templatefile("{FOLDER / "cloud-init.yaml.tftpl"}", {{{values}}}))'
    done = subprocess.run(
        [terraform, "console"], input=expression, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(json.loads(done.stdout))


def test_they_are_formatted(terraform: str) -> None:
    done = subprocess.run([terraform, "fmt", "-check", str(FOLDER)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_each_variable_is_declared_and_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.tf")))
    declared = set(re.findall(r'^variable "(\w+)"', text, re.MULTILINE))
    assert declared == set(re.findall(r"\bvar\.(\w+)", text))
    assert set(re.findall(r"\$\{(\w+)", (FOLDER / "cloud-init.yaml.tftpl").read_text())) - {"indent"} <= {*VALUES, "service"}


def test_the_first_start_installs_the_unit_and_a_configuration_that_can_be_used(terraform: str, tmp_path: Path) -> None:
    first = yaml.safe_load(drawn(terraform, tmp_path))
    files = {file["path"]: file["content"] for file in first["write_files"]}
    assert files["/etc/systemd/system/tardigrade.service"] == UNIT.read_text(encoding="utf-8")
    (tmp_path / "server.toml").write_text(files["/etc/tardigrade.toml"])
    config = load_config(str(tmp_path / "server.toml"))
    assert (config.model, config.api_keys) == (VALUES["model"], True)
    script = files["/usr/local/sbin/tardigrade-disk"]
    subprocess.run(["sh", "-n"], input=script, text=True, timeout=60, check=True)
    assert VALUES["volume"] in script
    program = re.search(r"^ExecStart=(\S+)/supervisor ", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert program is not None
    assert [f"{program[1]}/pip", "install", VALUES["release"]] in first["runcmd"], "where the unit starts it"


def test_nobody_takes_them_for_tried() -> None:
    assert "**Not applied.**" in (FOLDER / "README.md").read_text(encoding="utf-8")
