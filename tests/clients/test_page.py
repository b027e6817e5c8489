"""The page at / in a browser, against servers without and with API keys. `make browser-env` installs what drives it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.programs import own_variables, program_of
from tests.clients.running_suites import SUITES
from tests.support.key_commands import keys
from tests.support.nvml.stub_library import StubNvml
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FLAGS = ("--model", "hash-chain", "--max-length", "512", "--set", "worker.hash_chain_step_s=0.02", "--gateways", "2")
_LIMIT_S = 800.0


def check_page(server: RealServer, out: Path, api_keys: str = "") -> None:
    """Run the suite against a server. Raises: AssertionError with all that it has printed where a test of it fails."""
    python, browser = program_of("browser", "python"), shutil.which("chromium")
    if browser is None:
        pytest.skip("needs Chromium: make browser-env")
    given = {"CLIENT_URL": server.url, "CLIENT_OUT": str(out), "CLIENT_KEYS": api_keys, "BROWSER": browser}
    options = ["-c", "/dev/null", "--rootdir", str(SUITES), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-qs"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, str(SUITES / "browser" / "page_suite.py")],
        env=own_variables() | given,
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr + server.log()[-4000:]
    assert " passed" in done.stdout


def test_the_page_of_an_open_server(tmp_path: Path) -> None:
    with real_server(*FLAGS) as server:
        check_page(server, tmp_path / "out")


def test_the_page_of_a_server_with_keys_and_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is a library in the place of NVML."""
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    stub.say(gpus=1, busy=50, used=1_500_000_000)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    user, admin = (keys(state, "add", "--tenant", role, "--role", role) for role in ("user", "admin"))
    caches = ("--answer-cache", "exact", "--host-cache", "64KiB")
    flags = (*FLAGS, *caches, "--api-keys", "--state-dir", str(state), "--set", 'gpu_monitor.devices=["0"]')
    with real_server(*flags) as server:
        check_page(server, tmp_path / "out", f"{user} {admin}")
