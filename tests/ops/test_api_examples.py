"""The examples of docs/api.md, run as they stand there; their answers have the keys that it shows. Every endpoint has one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.http.endpoint import Endpoint
from ops.bench.own_server import OwnServer

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n((?:curl [^\n]*\n)+)```(?:\n\n```json\n(.*?)\n```)?", PAGE, re.DOTALL)
EXAMPLES = [(command, shown) for commands, shown in BLOCKS for command in commands.splitlines()]


def endpoint_of(command: str) -> Endpoint:
    """The endpoint that a command calls."""
    path = re.findall(r"127\.0\.0\.1:8000(/[^ '?]*)", command)[0]
    method = (re.findall(r"-X (\w+)", command) or ["POST" if " -d " in command else "GET"])[0]
    found = [one for one in ENDPOINTS if one.method == method and re.fullmatch(re.sub(r"{\w+(:path)?}", ".+", one.path), path)]
    return max(found, key=lambda one: len(one.path))


def test_every_endpoint_has_an_example() -> None:
    """Here, or for those of operators in docs/operations.md, whose examples have a test of their own."""
    assert len(BLOCKS) == PAGE.count("```sh")
    of_operators = re.findall(r"^curl [^\n]*127\.0\.0\.1:8000[^\n]*", OPERATIONS, re.MULTILINE)
    shown = [endpoint_of(command) for command in [*(command for command, _ in EXAMPLES), *of_operators]]
    assert [f"{one.method} {one.path}" for one in ENDPOINTS if one not in shown] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_what_the_page_shows_works(hash_chain_server: OwnServer) -> None:
    for command, shown in EXAMPLES:
        here = command.replace("127.0.0.1:8000", f"127.0.0.1:{hash_chain_server.port}").replace("smollm2", "hash-chain")
        run = subprocess.run(["sh", "-c", here], capture_output=True, text=True, timeout=120, check=False)
        if "-sN" in command:
            assert run.stdout.rpartition("\nid: ")[0].endswith("data: [DONE]"), run.stdout
            continue
        if endpoint_of(command).media_type != "application/json":
            assert run.stdout
            assert '"error"' not in run.stdout
            continue
        answer = json.loads(run.stdout)
        assert answer.get("error") is None, (command, answer)
        if shown:
            assert list(answer) == list(json.loads(shown)), command
