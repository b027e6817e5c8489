"""`python -m tests.clients.record`: record anew what the clients send that can be installed here (`make client-env`).

Each suite runs against a server behind a recorder; `bodies/recorded/NAME.json` gets one request of each form.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from tests.clients.prose import without_prose
from tests.clients.recording import recording
from tests.clients.running_suites import BY_NAME, MODEL, run_suite
from tests.support.real_server import real_server

FOLDER = Path(__file__).parent / "bodies" / "recorded"
_EMBEDDINGS = "all-MiniLM-L6-v2"


def main(names: list[str]) -> int:
    """Record the suites of these names, all without one; returns how many have failed, whose files stay as they are."""
    failed: list[str] = []
    with real_server("--model", MODEL, "--embedding-model", _EMBEDDINGS) as server, tempfile.TemporaryDirectory() as folder:
        for name in names or BY_NAME:
            client = BY_NAME[name]
            with recording(server.url, client.forced) as recorder:
                try:
                    done = run_suite(recorder.url, name, Path(folder) / name)
                except pytest.skip.Exception as missing:
                    print(name, missing, flush=True)
                    continue
            print(name, done.stdout.splitlines()[-1:], len(recorder.requests), flush=True)
            if done.returncode:
                failed.append(name)
                continue
            requests = without_prose(recorder.requests) if client.has_texts else recorder.requests
            found = {"client": client.client, "version": client.version, "requests": requests}
            (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
