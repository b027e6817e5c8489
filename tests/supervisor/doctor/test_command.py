"""`supervisor doctor` on this machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from supervisor.directories.run_dir_files import SERVER
from supervisor.doctor.checks import CHECKS
from supervisor.doctor.collect import collect
from tests.support.supervisor.command_line import call


def test_it_sees_a_port_that_another_program_has_and_a_directory_that_others_may_read(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="tg-", dir="/tmp") as folder, socket.create_server(("127.0.0.1", 0)) as other:
        shown = Path(folder)  # short enough for sockets
        shown.chmod(0o755)
        port = other.getsockname()[1]
        flags = ("--port", str(port), "--run-dir", str(shown), "--state-dir", str(tmp_path / "none" / "yet"))
        said = call("doctor", "--json", *flags)
        text = call("doctor", *flags)
    found = {one["check"]: one for one in json.loads(said.stdout)}
    assert set(found) == set(CHECKS)
    assert said.returncode == text.returncode == 2
    assert found["port"]["verdict"] == "failure"
    assert "in use" in found["port"]["text"]
    assert "chmod 700" in found["run directory"]["repair"]
    assert "FAILURE  port" in text.stdout
    assert found["port"]["repair"] in text.stdout
    assert not list(tmp_path.glob("none")), "nothing is made"


def test_facts_of_this_machine(tmp_path: Path) -> None:
    facts = collect("127.0.0.1", 0, tmp_path / "run", tmp_path, is_ours=False)
    assert facts.missing_packages == ()
    assert facts.memory_available > 0
    assert facts.cores > 0
    assert facts.state_dir.exists
    assert facts.state_dir.sync_ms
    assert facts.state_dir.file_system
    assert not facts.run_dir.exists
    assert collect("127.0.0.1", 0, tmp_path / ("x" * 120), tmp_path, is_ours=False).run_dir_excess


def test_it_looks_at_the_folder_of_converted_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "cache"))
    cache = collect("127.0.0.1", 0, tmp_path / "run", tmp_path, is_ours=False).model_cache
    assert cache is not None
    assert (cache.path, cache.is_writable) == (str(tmp_path / "cache"), True)


def test_a_directory_that_cannot_be_looked_at_counts_as_missing(tmp_path: Path) -> None:
    longer_than_any_name = tmp_path / ("x" * 300)
    assert not collect("127.0.0.1", 0, tmp_path / "run", longer_than_any_name, is_ours=False).state_dir.exists


def test_it_looks_at_the_state_directory_of_the_server_that_runs_there(tmp_path: Path) -> None:
    """As `supervisor keys` finds it: that of the port alone would say nothing of a disk that is full."""
    with TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (Path(folder) / SERVER).write_text(json.dumps({"keys_dir": str(elsewhere)}))
        said = call("doctor", "--json", "--run-dir", folder)
    found = {one["check"]: one for one in json.loads(said.stdout)}
    assert str(elsewhere) in found["state directory"]["text"]
