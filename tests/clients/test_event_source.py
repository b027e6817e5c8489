"""A browser's EventSource reads a stream whole while its gateway is killed. `make browser-env` installs the browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from tests.clients.programs import own_variables, program_of
from tests.clients.running_suites import SUITES
from tests.support.real_server import real_server
from tests.support.streams import VOCABULARY

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_TOKENS, PROMPT = 600, [5, 6, 7]
TEXT = "".join(f"{token} " for token in hash_chain_tokens(PROMPT, N_TOKENS, 0, VOCABULARY))
BODY = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0, "model": "hash-chain", "stream": True}
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.02")
_LIMIT_S = 500.0


class EmptyPage(BaseHTTPRequestHandler):
    """A page without anything."""

    def do_GET(self) -> None:
        page = b"<!doctype html><title>page</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


@pytest.fixture
def page_port() -> Iterator[int]:
    """The port of 127.0.0.1 where a page is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not_held"])
def test_an_event_source_in_a_browser(page_port: int, tmp_path: Path, *, is_held: bool) -> None:
    """The page's origin is another one than the server's. Without held connections the browser connects again by itself."""
    python, browser = program_of("browser", "python"), shutil.which("chromium")
    if browser is None:
        pytest.skip("needs Chromium: make browser-env")
    page = f"http://127.0.0.1:{page_port}"
    sets = (f'gateway.allowed_origins=["{page}"]', f"hold_connections={str(is_held).lower()}")
    with real_server(*FLAGS, *(part for one in sets for part in ("--set", one))) as server:
        given = {
            "CLIENT_URL": server.url,
            "CLIENT_PAGE": f"{page}/",
            "CLIENT_FOREIGN": f"http://localhost:{page_port}/",
            "CLIENT_TEXT": TEXT,
            "CLIENT_BODY": json.dumps(BODY),
            "CLIENT_HELD": str(int(is_held)),
            "BROWSER": browser,
        }
        options = ["-c", "/dev/null", "--rootdir", str(SUITES), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-qs"]
        done = subprocess.run(
            [python, "-m", "pytest", *options, str(SUITES / "browser" / "event_source_suite.py")],
            env=own_variables() | given,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr + server.log()[-4000:]
        assert "2 passed" in done.stdout
