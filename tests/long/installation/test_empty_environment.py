"""A wheel in an empty environment serves its default model, which it fetches, and goes on when a worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.packaging.empty_environment import EmptyEnvironment
from tests.support.packaging.source_copy import build_distributions
from tests.support.real_server import RealServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
ANSWER_S = 120.0
BODY = {"prompt": "The hardiest animal on earth is", "max_tokens": 16, "temperature": 0}


def has_index(folder: Path) -> bool:
    """Can pip fetch a package here?"""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "click>=8.1,<9"]
    return subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=False).returncode == 0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> EmptyEnvironment:
    """An environment with the wheel of this tree and what pip finds for it."""
    folder = tmp_path_factory.mktemp("installed")
    if not has_index(folder):
        pytest.skip("pip has no package index here")
    made = EmptyEnvironment(folder)
    made.install(str(build_distributions(folder).wheel))
    return made


def text_of(server: RealServer) -> str:
    """An answer over HTTP."""
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        return json.loads(answer.read())["choices"][0]["text"]


def test_it_serves_the_default_model_and_goes_on_after_a_kill(environment: EmptyEnvironment) -> None:
    where = environment.run("python", "-c", "import actors, gpu_workers, messages, supervisor as s; print(s.__file__)")
    assert Path(where).is_relative_to(environment.programs.parent)
    server = RealServer(program=environment.command("supervisor"))
    try:
        assert "fetching smollm2, once" in server.log()
        first = text_of(server)
        killed = server.kill("worker/0.0")
        assert text_of(server) == first
        server.wait_new_incarnation("worker/0.0", killed)
        assert "smollm2" in environment.run("supervisor", "status", "--run-dir", str(server.run_dir))
        assert server.stop() == 0
    finally:
        server.kill_all()


def test_both_commands_work_beside_the_other_package_of_that_name(environment: EmptyEnvironment) -> None:
    """In both orders: theirs over ours, and ours over theirs. Then theirs is removed."""
    environment.install("supervisor>=4.2,<5")
    (theirs,) = {environment.run(command, "--version") for command in ("supervisor", "tardigrade")}
    assert theirs.startswith("Tardigrade ")
    findings = json.loads(environment.run("supervisor", "doctor", "--all", "--json", "--port", "0"))
    assert "shares the folder" in next(one["text"] for one in findings if one["check"] == "other supervisor")
    environment.install("--force-reinstall", "--no-deps", str(next(environment.programs.parents[1].glob("build_wheel/*.whl"))))
    assert environment.run("tardigrade", "config", "files").count("\n") > 10
    assert environment.run("supervisord", "--version").startswith("4.")
    environment.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "supervisor")
    assert environment.run("supervisor", "--version") == theirs
