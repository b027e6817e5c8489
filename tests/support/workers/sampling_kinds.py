"""The kinds of sampling that runners are tested with, and the output of one sequence: alone, or computed in other ways."""

from __future__ import annotations

from collections.abc import Callable

from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.small_scheduler import GREEDY, Row, Running, SmallScheduler
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


def mixed(runner: ModelRunner, work: Callable[[SmallScheduler, Running], None], sampling: Sampling) -> list[int]:
    """The output of a sequence after `work`, on a scheduler of its own."""
    scheduler = SmallScheduler(runner, seed=5)
    s = scheduler.add(prompt_of(45), sampling)
    work(scheduler, s)
    return s.output


def check_drafts(runner: ModelRunner, kind: str, n_right: int) -> None:
    """A sequence with drafts, of which so many are right, has the tokens that it has alone."""
    expected = alone(runner, prompt_of(45), KINDS[kind], 30)

    def work(scheduler: SmallScheduler, s: Running) -> None:
        other = scheduler.add(prompt_of(8))
        scheduler.prefill(s, other)
        while len(s.output) < 24:
            done = len(s.output)
            drafts = [*expected[done : done + n_right], (expected[done + n_right] + 1) % TINY["vocab_size"], 5]
            scheduler.run([Row(other), Row(s, drafts=drafts)])
            assert len(s.output) == done + n_right + 1

    output = mixed(runner, work, KINDS[kind])
    assert output == expected[: len(output)]
