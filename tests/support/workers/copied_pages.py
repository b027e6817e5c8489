"""Sequences that share a prompt whose last page is copied for all but the first."""

from __future__ import annotations

from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.sampling_kinds import alone, prompt_of
from tests.support.workers.small_scheduler import GREEDY, Row, SmallScheduler


def copied_and_own(runner: ModelRunner, n_copied: int) -> list[tuple[list[int], list[int]]]:
    """Answers of four sequences to one prompt whose last page, with so many tokens, was copied for three of them; each beside
    the answer of the same sequence alone."""
    prompt = prompt_of(32 + n_copied + 1)
    scheduler = SmallScheduler(runner)
    first = scheduler.add(prompt)
    scheduler.prefill(first)
    siblings = [scheduler.add(prompt, Sampling(seed=seed), shares=first, n_shared=32 + n_copied) for seed in range(3)]
    pages = {sequence.pages[2] for sequence in (first, *siblings)}
    assert len(pages) == 4
    for _ in range(20):  # the first one writes its answer into the page that was copied
        scheduler.run([Row(sequence) for sequence in (first, *siblings)])
    alone_too = [alone(runner, prompt, Sampling(seed=seed), 20) for seed in range(3)]
    answers = [first.output, *(sibling.output for sibling in siblings)]
    return list(zip(answers, [alone(runner, prompt, GREEDY, 21), *alone_too], strict=True))
