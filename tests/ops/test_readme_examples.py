"""The README's examples, run as they stand there, against a server with the hash-chain model."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench.own_server import OwnServer

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_what_the_readme_shows_works(hash_chain_server: OwnServer) -> None:
    python = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block]
    shell = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if block.startswith("curl")]
    assert (len(python), len(shell)) == (2, 1)
    port = hash_chain_server.port
    for source in python:
        here = source.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("Client()", f"Client(port={port})")
        run = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr
        assert len(run.stdout) > 10
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    here = shell[0].replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    run = subprocess.run(["sh", "-c", here], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.rpartition("\nid: ")[0].endswith("data: [DONE]"), run.stderr
