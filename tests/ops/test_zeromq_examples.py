"""The examples of docs/zeromq.md, run as they stand there in one process, and what the page says about options and errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from messages import errors
from messages.client.options import Options
from messages.errors import ClientError
from ops.bench.own_server import OwnServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "zeromq.md").read_text(encoding="utf-8")
SAID = [
    "hash-chain",
    "length 16",
    "0 [",
    "pages are forgotten",
    "more pieces had come before the cancellation",
    "True",
    "temprature temprature: expected an option of this call, got temprature",
]


def test_what_the_page_shows_works(hash_chain_server: OwnServer) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 8
    here = f"Client(port={hash_chain_server.port})"
    source = "\n".join(examples).replace("AsyncClient()", f"Async{here}").replace("Client()", here)
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert [said for said in SAID if said not in run.stdout] == [], run.stdout
    assert "no answer" not in run.stdout


def test_the_page_names_every_option_and_every_error() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    left_out = {"sampling", "trace_id"}  # for programs that forward requests
    assert Options.__annotations__.keys() - left_out <= named
    client_errors = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ClientError)}
    assert client_errors <= named


def test_the_page_installs_what_the_package_demands() -> None:
    wanted = re.findall(r"'((?:pyzmq|msgspec|numpy)[^']*)'", PAGE)
    demanded = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert len(wanted) == 3
    assert [one for one in wanted if f'"{one}"' not in demanded] == []
