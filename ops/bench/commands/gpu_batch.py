"""`gpu-batch`: the batch workload on which engines are compared, on the bare engine and through the whole server.

The workload and its draws are those of nano-vllm's bench (random.seed(0), 256 sequences, 100 to 1024 tokens in and out,
temperature 0.6), so the figures stand beside those of any engine that was fed the same. Random token ids, end of sequence
ignored, prefix reuse and speculation off: speed only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import click

from messages.errors import ConfigError
from ops.bench.busy_devices import BusyDevices
from ops.bench.children.line_child import LineChild
from ops.bench.children.worker_child import worker_child
from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from supervisor.bench.http.stream import ConnectionPool, Target
from supervisor.bench.load import Load, LoadLimit
from supervisor.bench.prompts import Job
from supervisor.bench.serve_load import CONSOLE, first_model, write_json
from supervisor.config.server_config import load_config

_TEMPERATURE = 0.6
_PAIRS = 5  # of a short and a long run: what a single one does for the first time may take milliseconds, which is 4 % of one
_MAX_CONNECTIONS = 900  # below the usual limit of open files

RunAll = Callable[[list[list[int]], list[int]], float]  # (prompts, tokens to generate) -> seconds for all of them


@click.command(context_settings={"show_default": True})
@click.option("--model", required=True, help="A folder (config.json alone is enough), or hash-chain.")
@click.option("--gpus", default=1)
@click.option("--tp", default=1)
@click.option("--replicas", default=1)
@click.option("--load-format", type=click.Choice(["random", "auto"]), default="random")
@click.option("--mode", "modes", multiple=True, type=click.Choice(["direct", "server"]), default=["direct", "server"])
@click.option("--seqs", default=256, help="Sequences of the batch workload.")
@click.option("--batches", default="1,8,64,256", help="Batch sizes whose time per token is measured.")
@click.option("--short/--full", default=False, help="Without prefill and request rates.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here, one line for each mode, instead of printing it.")
def command(
    model: str, gpus: int, tp: int, replicas: int, load_format: str, modes: Sequence[str], seqs: int, batches: str,
    short: bool, server_args: tuple[str, ...], out: str | None,
) -> None:  # fmt: skip
    """Batch throughput, time per token at several batch sizes, time to first token, prefill speed."""
    sizes = [int(size) for size in batches.split(",")]
    flags = {"model": model, "gpus": gpus, "tp": tp, "replicas": replicas, "max_length": 4096}
    worker = {} if model == "hash-chain" else {"load_format": load_format}
    described = {"model": model.rstrip("/").rpartition("/")[2], "gpus": gpus, "tp": tp, "replicas": replicas}
    try:
        child = worker_child(load_config(None, [flags, {"worker": worker}]))
        draw_below = min(10_001, child.vocabulary)
        if "direct" in modes and tp == replicas == 1:
            with LineChild("ops.bench.children.direct_child", child.settings.decode(), environment=child.environment) as direct:
                run = _direct(direct)
                _finish(described | {"mode": "direct"}, _measure(run, seqs, sizes, draw_below, short), out)
        if "server" in modes:
            with own_server(_arguments(flags, worker, server_args)) as server, through(server.url) as run:
                result = _measure(run, seqs, sizes, draw_below, short, BusyDevices(server))
                _finish(described | {"mode": "server", "start_s": round(server.start_s, 2)}, result, out)
    except (ConfigError, ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _arguments(flags: dict, worker: dict, more: Sequence[str]) -> list[str]:
    arguments = [word for key, value in flags.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    arguments += [word for key, value in worker.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return [*arguments, "--no-speculation", "--set", "scheduler.prefix_reuse=false", "--log-level", "warning", *more]


def _direct(child: LineChild) -> RunAll:
    def run(prompts: list[list[int]], outputs: list[int]) -> float:
        return child.ask({"prompts": prompts, "outputs": outputs, "temperature": _TEMPERATURE})["wall_s"]

    return run


@contextmanager
def through(url: str) -> Iterator[RunAll]:
    """Runs over HTTP, on one event loop whose connections stay open from run to run: the time of a run is that of its requests,
    and not that of connecting, of which an engine without a server has none."""
    model, target = first_model(url), Target(url)

    def body(job: Job) -> tuple[str, dict]:
        fields = {"model": model, "prompt": job.prompt, "max_tokens": job.max_tokens, "temperature": _TEMPERATURE}
        return "/v1/completions", fields | {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}

    async def run_all(jobs: list[Job], pool: ConnectionPool) -> float:
        load = Load(target, iter(jobs), body, pool=pool)
        run = await load.closed_loop(min(len(jobs), _MAX_CONNECTIONS), LoadLimit(requests=len(jobs)))
        wrong = [answer for answer in run.answers if answer.error]
        if wrong:
            raise ValueError(f"{len(wrong)} of {len(jobs)} requests failed, the first: {wrong[0].error} {wrong[0].detail}")
        if sum(answer.n_tokens for answer in run.answers) != sum(job.max_tokens for job in jobs):
            raise ValueError("output tokens: expected as many as were asked for")
        return run.wall_s

    with asyncio.Runner() as runner:
        pool = ConnectionPool(target)
        try:
            yield lambda prompts, outputs: runner.run(run_all([Job(p, n) for p, n in zip(prompts, outputs, strict=True)], pool))
        finally:
            pool.close()


def nano_workload(seqs: int, draw_below: int = 10_001) -> tuple[list[list[int]], list[int]]:
    """nano-vllm's prompts and output lengths, draw for draw (for the usual `draw_below`)."""
    random.seed(0)
    prompts = [[random.randint(0, draw_below - 1) for _ in range(random.randint(100, 1024))] for _ in range(seqs)]
    return prompts, [random.randint(100, 1024) for _ in range(seqs)]


def _measure(
    run: RunAll, seqs: int, sizes: Sequence[int], draw_below: int, short: bool, devices: BusyDevices | None = None
) -> dict:
    def same(count: int, n_in: int, n_out: int) -> float:
        prompts = [[random.randint(10, draw_below - 1) for _ in range(n_in)] for _ in range(count)]
        return run(prompts, [n_out] * count)

    prompts, outputs = nano_workload(seqs, draw_below)
    same(1, 16, 8)
    same(min(seqs, 64), 128, 16)  # whatever compiles or tunes itself does it now
    wall_s, busy = devices.share(lambda: run(prompts, outputs)) if devices else (run(prompts, outputs), None)
    n_in, n_out = sum(map(len, prompts)), sum(outputs)
    found = {"in": n_in, "out": n_out, "s": round(wall_s, 3), "out_tok_s": round(n_out / wall_s, 1)}
    result: dict = {"nano_bench": found | ({"busy_share": round(busy, 4)} if busy is not None else {})}
    CONSOLE.print(result)
    for size in sizes:
        pairs_s = [(same(size, 128, 2), same(size, 128, 258)) for _ in range(_PAIRS)]
        result[f"tpot_ms_b{size}"] = round(median(long_s - short_s for short_s, long_s in pairs_s) / 256 * 1e3, 4)
    for n_in in (128, 2048):
        result[f"ttft_ms_in{n_in}"] = round(min(same(1, n_in, 1) for _ in range(5)) * 1e3, 3)
    if not short:
        result["prefill_tok_s"] = round(2048 * 64 / same(64, 2048, 1))
        result["req_s_32in_16out"] = round(2000 / same(2000, 32, 16), 1)
    return result


def _finish(described: dict, result: dict, out: str | None) -> None:
    CONSOLE.print(described | result)
    write_json(described | result | {"bench": "gpu-batch", "machine": describe_machine()}, out)
