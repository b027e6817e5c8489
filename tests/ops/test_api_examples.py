"""The examples of docs/api.md, run as they stand there; their answers have the keys that the page shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ops.bench.own_server import OwnServer

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sh\n(curl [^\n]*)\n```(?:\n\n```json\n(.*?)\n```)?", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_what_the_page_shows_works(hash_chain_server: OwnServer) -> None:
    assert len(EXAMPLES) == PAGE.count("```sh") >= 10
    for command, shown in EXAMPLES:
        here = command.replace("127.0.0.1:8000", f"127.0.0.1:{hash_chain_server.port}")
        run = subprocess.run(["sh", "-c", here], capture_output=True, text=True, timeout=120, check=False)
        if "-sN" in command:
            assert run.stdout.rpartition("\nid: ")[0].endswith("data: [DONE]"), run.stdout
            continue
        answer = json.loads(run.stdout)
        assert answer.get("error") is None, (command, answer)
        if shown:
            assert list(answer) == list(json.loads(shown)), command
