"""The image, built and run by buildah and podman as root.

    TEST_IMAGE_BASE=localhost/base:1 pytest tests/long/deployment/test_image.py      builds the Dockerfile on this local base
    TEST_IMAGE=localhost/tardigrade-serve:cpu pytest ...                             runs an image that is there

Without one of the variables the tests are skipped: a build takes minutes and a gigabyte of packages. TEST_IMAGE_FLAGS has more
flags for the build, such as those of a mirror of packages. The container has no network: what asks it runs inside.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
BUILT, NAME, VOLUME = "localhost/tardigrade-serve:tested", "tardigrade-tested", "tardigrade-tested-state"
PODMAN = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
SAFE = ["--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
LIMITS = ["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096", "--shm-size", "256m"]
START_S, CALL_S = 300.0, 120.0
ASK = """
import http.client, json, sys
c = http.client.HTTPConnection("127.0.0.1", 8000, timeout=100)
body = {"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
headers = {"Authorization": "Bearer " + sys.argv[1], "Content-Type": "application/json"}
c.request("POST", "/v1/completions", json.dumps(body), headers)
print(c.getresponse().status)
"""


def called(*command: str, timeout_s: float = CALL_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def podman(*arguments: str) -> str:
    """What a command of podman prints. Raises: AssertionError if it fails."""
    done = called(*PODMAN, *arguments)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    """The image to run."""
    if found := os.environ.get("TEST_IMAGE"):
        return found
    if not (base := os.environ.get("TEST_IMAGE_BASE")):
        pytest.skip("neither TEST_IMAGE nor TEST_IMAGE_BASE is set")
    flags = [
        "--isolation",
        "chroot",
        "--format",
        "docker",
        "--pull-never",
        *shlex.split(os.environ.get("TEST_IMAGE_FLAGS", "")),
    ]
    ignore = ["--ignorefile", str(ROOT / "ops/docker/Dockerfile.dockerignore"), "-f", str(ROOT / "ops/docker/Dockerfile")]
    done = called("buildah", "bud", *flags, *ignore, "--build-arg", f"BASE={base}", "-t", BUILT, str(ROOT), timeout_s=850.0)
    assert done.returncode == 0, done.stderr[-4000:]
    return BUILT


@pytest.fixture
def container(image: str) -> Iterator[str]:
    """A container with the image's own command, after its health check has passed."""
    called(*PODMAN, "volume", "rm", "--force", VOLUME)
    podman("run", "--detach", "--name", NAME, *SAFE, *LIMITS, "-v", f"{VOLUME}:/var/lib/tardigrade", image)
    try:
        wait_until_healthy()
        yield NAME
    finally:
        called(*PODMAN, "rm", "--force", NAME)
        called(*PODMAN, "volume", "rm", "--force", VOLUME)


def wait_until_healthy() -> None:
    """Until the image's health check passes and the whole tree serves. Raises: AssertionError with the log at the deadline."""
    end_s = time.monotonic() + START_S
    asks = (["healthcheck", "run", NAME], ["exec", NAME, "supervisor", "status"])
    while any(called(*PODMAN, *ask).returncode for ask in asks):
        assert time.monotonic() < end_s, called(*PODMAN, "logs", NAME).stderr
        time.sleep(1.0)


def test_it_serves_without_rights_reaps_orphans_drains_and_goes_on_with_its_volume(container: str) -> None:
    assert podman("exec", container, "id", "--user") == "10001"
    assert called(*PODMAN, "exec", container, "touch", "/opt/tardigrade/x").returncode, "the root is read-only"
    key = podman("exec", container, "supervisor", "keys", "add", "--tenant", "a").splitlines()[-1]
    assert podman("exec", container, "python3", "-c", ASK, key) == "200"

    podman("exec", container, "sh", "-c", "sleep 0.1 & sleep 0.1 & exit 0")
    orphans = "p=1; while [ $p -gt 0 ]; do p=$(ps -eo stat,comm | grep -c -e ^Z -e sleep$); done; echo none"
    assert podman("exec", container, "sh", "-c", orphans) == "none", "process 1 reaps what others have left"

    podman("stop", "--time", "110", container)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", container) == "0"

    podman("start", container)
    wait_until_healthy()
    assert podman("exec", container, "python3", "-c", ASK, key) == "200", "keys are in the volume"
