"""The worker's engine in a process of its own, driven by direct_engine.py.

python -m ops.bench.children.direct_child SETTINGS_JSON
{"lengths": [[128, 128], ...], "seed": 0, "temperature": 0.0, "vocabulary": 10000}  ->  times, see DirectTimes
{"prompts": [[...], ...], "outputs": [...], "temperature": 0.6}                     ->  the same
{}                                                                                  ->  what the engine can hold
"""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import asdict
from typing import Any

import msgspec

from messages.generation.sampling import Sampling
from ops.bench.children.direct_engine import DirectJob, DirectRun, load_engine
from ops.bench.children.line_child import answer_lines, reserve_output
from supervisor.bench.prompts import random_ids


def main(settings: str) -> None:
    """Load the engine once, then answer."""
    replies = reserve_output()
    engine = load_engine(settings.encode(), {})
    epochs = itertools.count(1)

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if not question:
            return msgspec.to_builtins(engine.capacity())
        sampling = Sampling(temperature=question["temperature"], seed=question.get("seed", 0))
        return asdict(DirectRun(engine, jobs_of(question), sampling, next(epochs)).run())

    answer_lines(replies, answer)
    engine.close()


def jobs_of(question: dict[str, Any]) -> list[DirectJob]:
    """The jobs of one question: its prompts, or random prompts of its lengths."""
    if "prompts" in question:
        return [DirectJob(prompt, n) for prompt, n in zip(question["prompts"], question["outputs"], strict=True)]
    rng = random.Random(question["seed"])
    return [DirectJob(random_ids(n_in, rng, question["vocabulary"]), n_out) for n_in, n_out in question["lengths"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
