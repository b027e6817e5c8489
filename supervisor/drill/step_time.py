"""How long a step of the server takes, as its metrics say, so that a pause can be told in steps."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import httpx

_STEPS = "tardigrade_worker_step_seconds"


@dataclass(frozen=True)
class StepsSoFar:
    """What the workers of a server have done until now. All zero for a server that does not say it."""

    n: float = 0.0
    sum_s: float = 0.0


def parse_steps(text: str) -> StepsSoFar:
    """Sum up the histograms of all workers in a Prometheus text."""
    sums = {f"{_STEPS}_count": 0.0, f"{_STEPS}_sum": 0.0}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in sums:
            sums[name] += float(line.rpartition("}")[2].split()[0] if "}" in line else line.split()[1])
    return StepsSoFar(sums[f"{_STEPS}_count"], sums[f"{_STEPS}_sum"])


async def steps_so_far(client: httpx.AsyncClient, url: str) -> StepsSoFar:
    """Ask the server at `url`. A server without these metrics, or that does not answer, has no steps."""
    try:
        answer = await client.get(f"{url}/metrics")
    except httpx.HTTPError:
        return StepsSoFar()
    return parse_steps(answer.text) if answer.status_code == HTTPStatus.OK else StepsSoFar()


def step_ms_between(before: StepsSoFar, after: StepsSoFar) -> float:
    """The mean time of a step between two answers, or of all steps where none is known between them; 0: not known."""
    n, sum_s = after.n - before.n, after.sum_s - before.sum_s
    if n <= 0.0:
        n, sum_s = after.n, after.sum_s
    return 1e3 * sum_s / n if n > 0.0 else 0.0
