"""Requests that schemathesis draws from the OpenAPI document of a running server: no status of 500 or above but that of a
client's own deadline, and none that the document does not name. Calls that keep the server from working for others come last.

SCHEMATHESIS_S: for how many seconds; it goes on with new requests until they are over.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.programs import own_variables, program_of
from tests.support.real_server import real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]
TIME_S = int(os.environ.get("SCHEMATHESIS_S", "60"))
OPERATOR_KEY = "the-operators"
CHECKS = "not_a_server_error,status_code_conformance"
LAST = ("/v1/drain", "/v1/cordon")  # since then the server refuses other requests, or lets them wait
LAST_S = 5
PHASES = "examples,coverage,fuzzing"
# 504 is what a client gets that asks for an answer within 1e-311 s (`deadline_s`)
SETTINGS = """[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "504"]
"""


def test_every_answer_has_a_status_that_the_document_names(tmp_path: Path) -> None:
    program = program_of("schemathesis", "schemathesis")
    settings = ("--max-length", "512", "--set", f"gateway.operator_key={OPERATOR_KEY}")
    with real_server("--model", "hash-chain", *settings) as server:
        options = ["--checks", CHECKS, "--phases", PHASES, "--continue-on-failure"]
        asked = ["-H", f"X-Operator-Key: {OPERATOR_KEY}", "--request-timeout", "60"]  # without the key five paths say 403 alone
        (tmp_path / "schemathesis.toml").write_text(SETTINGS)
        for choice, time_s in (("--exclude-path", TIME_S), ("--include-path", LAST_S)):
            paths = [word for path in LAST for word in (choice, path)]
            command = [program, "run", f"{server.url}/openapi.json", *options, *asked, *paths, "--max-time", str(time_s)]
            done = subprocess.run(command, env=own_variables(), cwd=tmp_path, capture_output=True, text=True)
            said = done.stdout + done.stderr
            assert done.returncode == 0, said + server.log()[-4000:]
            assert " passed" in said
        assert not any(child.restarts for child in server.status().children)
