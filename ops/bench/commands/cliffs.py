"""`cliffs`: workloads on which engines show cliffs, against a running server or against this planner on a simulated device.

python -m ops.bench cliffs --url http://127.0.0.1:8000            any server that speaks the OpenAI API
python -m ops.bench cliffs --simulate [--step-s 0.02]             the planner alone; the device is a formula
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import click

from ops.bench.cliffs.workloads import WORKLOADS, TimedRequest
from supervisor.bench.http.stream import Target
from supervisor.bench.load import Load, LoadLimit
from supervisor.bench.prompts import Job, random_ids
from supervisor.bench.serve_load import CONSOLE, first_model, write_json
from supervisor.bench.statistics import summarize

_VOCABULARY = 10_000
_UNANSWERED = 10_000  # requests at most


@dataclass(frozen=True)
class MeasuredStream:
    """One request as its client saw it. Times are seconds of one clock."""

    n_prompt: int
    asked_s: float
    texts_s: Sequence[float]


@click.command(context_settings={"show_default": True})
@click.option("--url", default="", help="Where the server listens.")
@click.option("--simulate", is_flag=True, help="No server: the planner against a formula of 8B on an H200.")
@click.option("--workload", "names", type=click.Choice(list(WORKLOADS)), multiple=True, help="Default: all of them.")
@click.option("--scale", default=1.0, help="Size of a workload, 1: for an H200 and a model of 8B.")
@click.option("--step-s", default=0.0, help="Simulated: scheduler.step_s.")
@click.option("--seed", default=1)
@click.option("--out", help="Append the JSON here, one line for each workload.")
def command(url: str, simulate: bool, names: tuple[str, ...], scale: float, step_s: float, seed: int, out: str | None) -> None:
    """A very long prompt, long prompts beside short requests, a burst: gaps between tokens and first tokens."""
    if bool(url) == simulate:
        raise click.UsageError("expected one of --url and --simulate")
    for name in names or WORKLOADS:
        requests = WORKLOADS[name](scale, random.Random(seed))
        try:
            streams = _simulated(requests, step_s) if simulate else asyncio.run(_served(url, requests, seed))
        except (OSError, ValueError) as error:
            raise click.ClickException(str(error)) from None
        where = f"simulated, step_s {step_s:g}" if simulate else url
        result = {"bench": "cliffs", "workload": name, "where": where, "scale": scale, **figures_of(streams)}
        CONSOLE.print(result)
        write_json(result, out)


def figures_of(streams: Sequence[MeasuredStream]) -> dict[str, Any]:
    """Whole time, tokens a second, and in milliseconds the gaps and first tokens, those of long prompts apart."""
    long_tokens = max(stream.n_prompt for stream in streams) // 2
    began_s, ended_s = min(s.asked_s for s in streams), max(s.texts_s[-1] for s in streams)
    firsts = [(stream.n_prompt > long_tokens, stream.texts_s[0] - stream.asked_s) for stream in streams]
    gaps = [after - before for stream in streams for before, after in pairwise(stream.texts_s)]
    return {
        "wall_s": round(ended_s - began_s, 3),
        "chunks_per_s": round(sum(len(stream.texts_s) for stream in streams) / (ended_s - began_s), 1),
        "gap_ms": _summary(gaps),
        "first_short_ms": _summary([first_s for is_long, first_s in firsts if not is_long]),
        "first_long_ms": _summary([first_s for is_long, first_s in firsts if is_long]),
    }


def _summary(values: list[float]) -> dict[str, float] | None:
    summary = summarize(values)
    return None if summary is None else summary.scaled(1e3, 1)


async def _served(url: str, requests: Sequence[TimedRequest], seed: int) -> list[MeasuredStream]:
    """Send each request at its time, with a random prompt; returns the streams. Raises: OSError; ValueError when one fails."""
    model, rng = first_model(url), random.Random(seed)
    jobs = iter([Job(random_ids(one.n_prompt, rng, _VOCABULARY), one.n_tokens) for one in requests])

    def body(job: Job) -> tuple[str, dict]:
        fields = {"model": model, "prompt": job.prompt, "max_tokens": job.max_tokens, "temperature": 0.0}
        return "/v1/completions", fields | {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}

    load = Load(Target(url), jobs, body)
    run = await load.open_loop(iter([one.at_s for one in requests]), LoadLimit(requests=len(requests)), _UNANSWERED)
    load.close()
    wrong = [answer for answer in run.answers if answer.error or not answer.text_s]
    if wrong:
        raise ValueError(f"{len(wrong)} of {len(requests)} requests failed, the first: {wrong[0].error} {wrong[0].detail}")
    return [MeasuredStream(answer.n_prompt, answer.scheduled_s, answer.text_s) for answer in run.answers]


def _simulated(requests: Sequence[TimedRequest], step_s: float) -> list[MeasuredStream]:
    from actors.scheduler.settings import SchedulerSettings
    from ops.bench.cliffs.device import Device
    from ops.bench.cliffs.simulated import SimulatedRun

    given = SimulatedRun(SchedulerSettings(step_s=step_s), Device()).run(requests)
    return [MeasuredStream(one.n_prompt, one.at_s, given.token_times_s[number]) for number, one in enumerate(requests)]
