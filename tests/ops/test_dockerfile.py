"""The Dockerfile against the package, the supervisor and the chart; hadolint is run by tests/long/deployment."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from messages.run_dir import DEFAULT_PORT
from supervisor.__main__ import main
from supervisor.host_files.folder import host_files

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "ops" / "docker"
TEXT = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
LINES = re.sub(r"\\\n\s*", "", TEXT).splitlines()


def values_of(instruction: str) -> list[str]:
    """What follows each instruction of this name."""
    return [line.partition(" ")[2].strip() for line in LINES if line.startswith(instruction + " ")]


def test_signals_reach_the_supervisor() -> None:
    (entry,), (command,) = values_of("ENTRYPOINT"), values_of("CMD")
    assert json.loads(entry) == ["supervisor"], "the exec form: a shell as process 1 passes no signal on"
    assert values_of("STOPSIGNAL") == ["SIGTERM"]
    name, *flags = json.loads(command)
    known = {option for parameter in main.commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {flag for flag in flags if flag.startswith("--")} <= known
    assert "--api-keys" in flags, "a port of the host that others reach asks for keys"


def test_its_health_is_that_of_a_gateway() -> None:
    (check,) = [line for line in LINES if line.startswith("HEALTHCHECK")]
    assert "/livez" in check
    assert f"'127.0.0.1', {DEFAULT_PORT}" in check
    assert values_of("EXPOSE") == [str(DEFAULT_PORT)]
    program = json.loads(check.partition(" CMD ")[2])[2]
    compile(program, "healthcheck", "exec")


def test_it_runs_as_a_user_without_rights_and_keeps_state_in_volumes() -> None:
    (user,), (volumes,) = values_of("USER"), values_of("VOLUME")
    assert user == "10001:10001"
    assert json.loads(volumes) == ["/var/lib/tardigrade", "/models"]


def test_it_installs_what_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert any(dependency.startswith("torch") for dependency in project["project"]["dependencies"])
    extras = dict(value.split("=", 1) for value in values_of("ARG") if "=" in value)
    assert extras["EXTRAS"] in project["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert extras["MODEL"].strip('"') in makefile, "the same model as make serve installs"


def test_the_wheel_is_made_of_what_the_build_gets() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = [name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    assert "*" in ignored
    modules = [f"{name}.py" for name in project["tool"]["setuptools"]["py-modules"]]
    read = ("pyproject.toml", "setup.py", "ops", "README.md", "LICENSE")  # setup.py puts the files of ops into the wheel
    assert {f"!{name}" for name in (*packages, *modules, *read)} <= set(ignored)
    assert "!*.whl" in ignored


def test_torch_is_that_of_the_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line that reads the requirement, with a wheel of two files."""
    (line,) = [line for line in values_of("RUN") if "Requires-Dist" in line]
    program = line.partition("python3 -c '")[2].rpartition("' > /torch.txt")[0]
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a/tests/METADATA", "Requires-Dist: torch>=9\n")
        wheel.writestr("a-1.dist-info/METADATA", "Name: a\nRequires-Dist: numpy<3\nRequires-Dist: torch<2.14,>=2.11\n")
    exec(program.replace("/wheels/", f"{tmp_path}/"), {})
    assert capsys.readouterr().out == "torch<2.14,>=2.11\n"


@pytest.mark.parametrize(("has_triton", "has_headers"), [(False, True), (True, True), (True, False)])
def test_a_compiler_comes_with_the_torch_that_needs_one(tmp_path: Path, has_triton: bool, has_headers: bool) -> None:
    """The step is run by a shell, with programs of the image that write down how they are called."""
    (step,) = [line for line in values_of("RUN") if "apt-get" in line]
    (tmp_path / "lib" / "python3.12" / "site-packages" / ("triton" if has_triton else "torch")).mkdir(parents=True)
    if has_headers:
        (tmp_path / "Python.h").touch()
    calls = tmp_path / "calls"
    for name, program in {"apt-get": f'echo "$@" >> {calls}', "python3": f"echo {tmp_path}", "rm": ":"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-ec", step.replace("/opt/tardigrade", str(tmp_path))], env=path, check=True)
    wanted = " gcc libc6-dev" + ("" if has_headers else " python3-dev")
    assert (calls.read_text() if has_triton else "").endswith(f"{wanted}\n" if has_triton else "")
    assert calls.exists() == has_triton


def test_the_layer_of_the_server_is_trimmed_after_pip_and_before_it_ends() -> None:
    (layer,) = [line for line in values_of("RUN") if "/tmp/wheels/*.whl" in line]
    assert layer.index("> /tmp/below") < layer.index("pip --python") < layer.index("ops/docker/trim.py ")
    assert "docker/trim.py" in {file.name for file in host_files()}, "it comes with the wheel"
