"""No kernel is compiled after a rank is ready, whatever is served: long prompts, few rows beside them, all sampling options."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_workers.runner.model_loading import load_model_runner
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.settings import WorkerSettings
from messages.generation.examples import example_of
from messages.generation.sampling import Sampling
from tests.support.workers.grammar.grammar_runs import WORDS
from tests.support.workers.grammar.tiny_tokenizer import END, write_tokenizer
from tests.support.workers.sampling_kinds import KINDS, prompt_of
from tests.support.workers.small_scheduler import Row, SmallScheduler
from tests.support.workers.tiny_model import write_model

pytestmark = pytest.mark.gpu

_GRAPH_TOKENS = 32  # steps with more tokens of prompts run kernel by kernel, as those of a large model do
_OPTIONS: list[Sampling] = [*KINDS.values(), example_of(Sampling)]


@pytest.fixture(params=["fast", "deterministic", "8-bit pages"])
def runner(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRunner:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if request.param == "8-bit pages" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a CUDA device of compute capability 8.9")
    monkeypatch.setattr("gpu_workers.runner.cuda_backend.launch_bound_tokens", lambda n, most: min(most, _GRAPH_TOKENS))
    folder = write_model(tmp_path)
    write_tokenizer(folder)
    settings = WorkerSettings(
        model_folder=str(folder),
        device="cuda",
        n_slots=96,
        max_step_tokens=2048,
        kv_memory_bytes=32 << 20,
        deterministic=request.param == "deterministic",
        kv_dtype="fp8" if request.param == "8-bit pages" else "auto",
        max_lease_steps=4,
    )
    return load_model_runner(settings, tmp_path, lambda phase, fraction: None)


def test_serving_compiles_nothing(runner: ModelRunner) -> None:
    serve_every_kind(runner)
    assert runner.late_compilations == 0


def serve_every_kind(runner: ModelRunner) -> None:
    """Steps of all kinds: none to 64 rows of one token, alone, with drafts, and beside prompts of even and odd lengths. Every
    third row follows a grammar."""
    for n_decode in (0, 1, 2, 3, 7, 15, 16, 33, 63, 64):
        for n_prompt in (0, 3, 30, 101, 200, 459):
            scheduler = SmallScheduler(runner)
            running = [scheduler.add(prompt_of(5 + i % 7), _OPTIONS[i % len(_OPTIONS)]) for i in range(n_decode)]
            for s in running[2::3]:
                s.grammar, s.end_tokens = WORDS, [END]
            if running:
                scheduler.prefill(*running)
                scheduler.run([Row(s) for s in running])
                if free := [Row(s) for s in running if not s.grammar]:
                    scheduler.run(free, n_steps=4)
            prompts = [scheduler.add(prompt_of(n_prompt + i), option) for i, option in enumerate(_OPTIONS) if n_prompt]
            prompts = prompts[: max(1, n_decode % len(_OPTIONS))]
            chunks = [Row(s, (len(s.tokens) + 1) // 2) for s in prompts]
            if not running and not chunks:
                continue
            scheduler.run([*(Row(s) for s in running), *chunks])
            scheduler.run(
                [*(Row(s, drafts=[1, 2, 3]) for s in running), *(Row(s, len(s.tokens) - s.n_computed) for s in prompts)]
            )
