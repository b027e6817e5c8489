"""The kinds of sampling that runners are tested with, and the output of one sequence alone."""

from __future__ import annotations

from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.small_scheduler import GREEDY, SmallScheduler
from tests.support.workers.tiny_model import TINY

RANDOM = Sampling(temperature=1.0, seed=11)
FILTERED = Sampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01, seed=12)
PENALISED = Sampling(temperature=0.0, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2)
KINDS = {"greedy": GREEDY, "random": RANDOM, "filtered": FILTERED, "penalised": PENALISED}


def prompt_of(n: int, start: int = 3) -> list[int]:
    """A prompt of `n` tokens of the tiny model."""
    return [(start + 7 * i * i) % TINY["vocab_size"] for i in range(n)]


def alone(runner: ModelRunner, prompt: list[int], sampling: Sampling, n: int = 12) -> list[int]:
    """The output of one sequence that has the runner for itself."""
    scheduler = SmallScheduler(runner)
    s = scheduler.add(prompt, sampling)
    scheduler.prefill(s)
    scheduler.decode([s], n - 1)
    return s.output
