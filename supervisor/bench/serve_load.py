"""`serve-load`: measure any running server that speaks the OpenAI API, by HTTP with server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from supervisor.bench.http.stream import Target
from supervisor.bench.lengths import parse_lengths
from supervisor.bench.load import Load, LoadLimit, Run
from supervisor.bench.prompts import Job, Tokenize, jobs_of_file, random_ids, random_text, synthetic_jobs
from supervisor.bench.report import figures, show
from supervisor.bench.samples import Samples, add_up, samples_of
from supervisor.bench.statistics import poisson_arrivals

CONSOLE = Console(stderr=True)
_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class LoadPlan:
    """Everything that defines a measurement, so that it can be repeated from its own report."""

    url: str
    model: str = ""  # empty: the first that the server names
    endpoint: str = "completions"  # or "chat"
    prompt_kind: str = "ids"  # or "text"
    input_lengths: str = "128"
    output_lengths: str = "128"
    prompts_file: str = ""
    tokenizer: str = ""  # a tokenizer.json, to make texts of an exact length
    vocabulary: int = 10_000  # random ids are drawn below it
    concurrency: int = 8
    rate_per_s: float = 0.0  # above 0: open loop
    open_loop_limit: int = 4096
    requests: int | None = None
    duration_s: float | None = None
    warmup: int = 0
    temperature: float = 0.0
    ignore_eos: bool = True
    extra: str = "{}"  # more fields of the body, as JSON
    seed: int = 0
    timeout_s: float = 600.0
    api_key: str = ""
    keeps_connections: bool = True  # False: each request has a connection of its own
    processes: int = 1  # load processes that share the work


def first_model(url: str, api_key: str = "", timeout_s: float = 30.0) -> str:
    """The first model that a server names.

    Raises: OSError when it does not answer, ValueError when it names none.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    base = url.rstrip("/").removesuffix("/v1")
    with urllib.request.urlopen(urllib.request.Request(f"{base}/v1/models", headers=headers), timeout=timeout_s) as reply:
        models = json.load(reply).get("data") or []
    if not models:
        raise ValueError(f"model: {url} names none")
    return models[0]["id"]


def measure(plan: LoadPlan, console: Console = CONSOLE) -> dict:
    """Warm up, measure, and give the figures with the plan beside them."""
    plan = replace(plan, model=plan.model or first_model(plan.url, plan.api_key))
    samples = add_up(_side_by_side(share_out(plan))) if plan.processes > 1 else take_samples(plan, console)
    described = {key: value for key, value in asdict(plan).items() if key != "api_key"}
    return {"plan": described, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} | figures(samples)


def share_out(plan: LoadPlan) -> list[LoadPlan]:
    """The parts of a plan for its processes, each with a seed of its own."""
    n = plan.processes

    def part(total: int, index: int) -> int:
        return total // n + (index < total % n)

    return [
        replace(
            plan,
            processes=1,
            seed=plan.seed + 1_000_003 * index,
            concurrency=max(part(plan.concurrency, index), 1),
            rate_per_s=plan.rate_per_s / n,
            open_loop_limit=max(part(plan.open_loop_limit, index), 1),
            requests=None if plan.requests is None else part(plan.requests, index),
            warmup=part(plan.warmup, index),
        )
        for index in range(n)
    ]


def _side_by_side(plans: list[LoadPlan]) -> list[Samples]:
    with ProcessPoolExecutor(len(plans), multiprocessing.get_context("spawn")) as pool:
        answers = list(pool.map(samples_as_bytes, plans))
    return [msgspec.msgpack.decode(answer, type=Samples) for answer in answers]


def samples_as_bytes(plan: LoadPlan) -> bytes:
    """One process's part of a plan."""
    return msgspec.msgpack.encode(take_samples(plan, Console(quiet=True)))


def take_samples(plan: LoadPlan, console: Console) -> Samples:
    """Run a plan in this process."""
    return samples_of(asyncio.run(_run(plan, console)))


async def _run(plan: LoadPlan, console: Console) -> Run:
    load = Load(
        Target(plan.url, plan.api_key, plan.timeout_s, plan.keeps_connections), _jobs(plan), lambda job: _body(plan, job)
    )
    try:
        if plan.warmup:
            await load.closed_loop(min(plan.concurrency, plan.warmup), LoadLimit(requests=plan.warmup))
        stop = LoadLimit(plan.requests, plan.duration_s)
        async with _progress_bar(load, stop, console):
            return await _drive(plan, load, stop)
    finally:
        load.close()


async def _drive(plan: LoadPlan, load: Load, stop: LoadLimit) -> Run:
    if plan.rate_per_s:
        arrivals = poisson_arrivals(plan.rate_per_s, random.Random(plan.seed + 1))
        return await load.open_loop(arrivals, stop, plan.open_loop_limit)
    return await load.closed_loop(plan.concurrency, stop)


def _jobs(plan: LoadPlan) -> Iterator[Job]:
    rng = random.Random(plan.seed)
    outputs = parse_lengths(plan.output_lengths)
    if plan.prompts_file:
        return jobs_of_file(Path(plan.prompts_file), outputs, rng)
    if plan.prompt_kind == "ids" and plan.endpoint == "completions":
        return synthetic_jobs(parse_lengths(plan.input_lengths), outputs, rng, lambda n, r: random_ids(n, r, plan.vocabulary))
    tokenize = _tokenizer(plan.tokenizer)
    return synthetic_jobs(parse_lengths(plan.input_lengths), outputs, rng, lambda n, r: random_text(n, r, tokenize))


def _tokenizer(path: str) -> Tokenize | None:
    if not path:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _body(plan: LoadPlan, job: Job) -> tuple[str, dict]:
    body = {
        "model": plan.model,
        "max_tokens": job.max_tokens,
        "temperature": plan.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if plan.ignore_eos:
        body["ignore_eos"] = True
    if plan.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": job.prompt}]
    else:
        body["prompt"] = job.prompt
    return _PATHS[plan.endpoint], body | json.loads(plan.extra)


@contextlib.asynccontextmanager
async def _progress_bar(load: Load, stop: LoadLimit, console: Console) -> AsyncIterator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=1.0)

        async def follow() -> None:
            while True:
                ended = len(load.run.answers)
                text = f"{ended} answered, {load.running} running"
                progress.update(bar, completed=stop.share_done(ended), description=text)
                await asyncio.sleep(0.25)

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()


def report(result: dict, title: str, out: str | None, console: Console = CONSOLE) -> None:
    """The table on standard error, the JSON on standard output or in a file (one line, appended)."""
    show(title, result, console)
    write_json(result, out)


def write_json(result: dict, out: str | None) -> None:
    """One JSON document: a line appended to `out`, or indented on standard output."""
    if out:
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    else:
        json.dump(result, sys.stdout, indent=1)
        sys.stdout.write("\n")
