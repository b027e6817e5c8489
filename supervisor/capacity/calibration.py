"""Measures steps and prompts on this machine: a private server of the configuration, asked for a minute or so.

A step is the difference of two runs that differ in their output lengths alone, divided by the tokens between them. Both have
prompts that were computed before, so that prompts do not count, nor connections, nor the start of a run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from messages.errors import ConfigError
from supervisor.capacity.replica_times import MeasuredTimes
from supervisor.capacity.workload import OfferedLoad

_SIZES = (1, 4, 16, 64, 256)
_STEPS = 32  # tokens between the two runs
_TIMES = 5  # each run; the median counts, so that a plan is for the machine with its other work
_SHORT_PROMPT_TOKENS, _LONGEST_PROMPT_TOKENS = 16, 1024
_PROMPTS_TOKENS, _MOST_PROMPTS = 2048, 8  # of prompts that are computed together
_BUDGET_S = 90.0  # greater numbers of sequences are left out when so much time has passed

# (requests at once, prompt tokens, output tokens, seed of the prompts) -> seconds for all of them
RunAll = Callable[[int, int, int, int], float]


def calibrate(
    run: RunAll,
    load: OfferedLoad,
    most_sequences: int,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda line: None,
) -> MeasuredTimes:
    """Measure with `run`. `most_sequences`: that a replica answers at once; more are not measured. `say` gets each result."""
    began_s, seeds = clock(), itertools.count(1)
    prompt_tokens = max(min(load.prompt_tokens, _LONGEST_PROMPT_TOKENS), _SHORT_PROMPT_TOKENS)
    run(1, prompt_tokens, 2, 0)  # what is compiled at its first use is there now
    n_prompts = max(min(_PROMPTS_TOKENS // prompt_tokens, _MOST_PROMPTS, most_sequences), 1)
    alone_s = median(run(1, prompt_tokens, 1, next(seeds)) for _ in range(_TIMES))
    together_s = median(run(n_prompts, prompt_tokens, 1, next(seeds)) for _ in range(_TIMES))
    token_s = min(together_s / n_prompts, alone_s) / prompt_tokens
    begin_s = alone_s - token_s * prompt_tokens
    say(f"a prompt of {prompt_tokens} tokens takes {alone_s:.2g} s")
    steps = list[tuple[int, float]]()
    for size in [size for size in _SIZES if size < most_sequences] + [min(most_sequences, 2 * _SIZES[-1])]:
        if steps and clock() - began_s > _BUDGET_S:
            break
        least_s = steps[-1][1] if steps else 1e-6  # more sequences take as long at least; all else is noise
        steps.append((size, max(_step_s(run, size, load), least_s)))
        say(f"a step of {size} {'sequence' if size == 1 else 'sequences'} takes {steps[-1][1] * 1e3:.3g} ms")
    return MeasuredTimes(steps, token_s, begin_s)


def _step_s(run: RunAll, n: int, load: OfferedLoad) -> float:
    """A step of n sequences in the middle of their answers."""
    context_tokens = min(max(int(load.mean_context_tokens) - _STEPS // 2, _SHORT_PROMPT_TOKENS), _LONGEST_PROMPT_TOKENS)
    run(n, context_tokens, 1, 0)
    pairs_s = [(run(n, context_tokens, 2, 0), run(n, context_tokens, 2 + _STEPS, 0)) for _ in range(_TIMES)]
    return median(long_s - short_s for short_s, long_s in pairs_s) / _STEPS


def calibrate_here(
    model: str, options: Mapping[str, Any], load: OfferedLoad, most_sequences: int, say: Callable[[str], None]
) -> MeasuredTimes:
    """Start a private server of `model` with these options of `supervisor start`, and measure it. `say` gets what is done.

    Raises: ConfigError, Unavailable if it does not start, ConfigError if it fails a request.
    """
    from messages.local.private_server import PrivateServer
    from supervisor.operator.calls import ask_status

    say("starting a private server")
    with PrivateServer(model, **options) as server:
        say("measuring it, which takes a minute or more")
        return calibrate(_run_on(ask_status(server.run_dir).url), load, most_sequences, say=say)


def _run_on(url: str) -> RunAll:
    """Streams of random prompts, all at once."""
    from rich.console import Console

    from supervisor.bench.serve_load import LoadPlan, first_model, measure

    model, quiet = first_model(url), Console(quiet=True)

    def run(n: int, prompt_tokens: int, output_tokens: int, seed: int) -> float:
        plan = LoadPlan(url, model, input_lengths=str(prompt_tokens), output_lengths=str(output_tokens), seed=seed)
        result = measure(replace(plan, concurrency=n, requests=n), quiet)
        if result["requests"]["good"] != n:
            errors = ", ".join(f"{kind}: {error['first']}" for kind, error in result["requests"]["errors"].items())
            raise ConfigError(
                f"measure: expected {n} answers of the private server, got {result['requests']['good']} ({errors})"
            )
        return result["wall_s"]

    return run
