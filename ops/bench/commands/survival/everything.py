"""`everything`: kill -9 of all processes of a server at once, a start, and what becomes of the requests that it had accepted.

    python -m ops.bench everything --rounds 20
    python -m ops.bench everything --rounds 20 --gpus 1 --model CONFIG_DIR --streams 240 --server-arg=--load-format \
        --server-arg=random --server-arg=--deterministic

A third of the streams is read by the ZeroMQ client, which comes back by itself. The others are plain HTTP, half of them with an
Idempotency-Key; their connections end with the server, and their clients ask for the rest by the id of the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import click
import httpx
import psutil

from messages.client import AsyncClient
from messages.run_dir import zeromq_endpoint
from ops.bench.campaign.oracle import Oracle
from ops.bench.campaign.resumed_streams import follow_through
from ops.bench.campaign.zmq_streams import follow_zmq
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, free_ports, own_server
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.directories.run_dir_files import read_parent_pid
from supervisor.drill.figures import Round, as_json, outcome_of, rows_of
from supervisor.drill.report import print_report
from supervisor.drill.streams import DrillStream, StreamRequest, find_model, is_answering
from supervisor.operator.ending import kill_server

_FAULT = "kill everything, then start"
_DEATH_S = 30.0
_POLL_S = 0.02
_ERRORS = 8


@click.command(context_settings={"show_default": True})
@click.option("--model", default="hash-chain", help="As for `supervisor start`; smollm2 is the packaged model.")
@click.option("--gpus", default="0", help="As for `supervisor start`.")
@click.option("--step-ms", default=10.0, help="Artificial time of one step of the hash chain.")
@click.option("--streams", "n_streams", default=24)
@click.option("--prompt-words", default=32)
@click.option("--output-tokens", default=200)
@click.option("--rounds", default=5)
@click.option("--deadline", "deadline_s", default=120.0, help="Seconds for one stream.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, gpus: str, step_ms: float, n_streams: int, prompt_words: int, output_tokens: int, rounds: int,
    deadline_s: float, server_args: tuple[str, ...], seed: int, out: str | None,
) -> None:  # fmt: skip
    """Kill all processes of a server at once, start it again, and follow the streams. Exit status 1 when a stream was lost or
    a token was wrong."""
    is_chain = model == "hash-chain"
    steps = ["--set", f"worker.hash_chain_step_s={step_ms / 1e3}"] if is_chain else []
    arguments = ["--model", model, "--gpus", gpus, "--log-level", "warning", *steps, *server_args]
    (port,) = free_ports(1)
    found: list[Round] = []
    with ExitStack() as stack:
        server = stack.enter_context(own_server(arguments, port=port))
        options, oracle = asyncio.run(_prepared(server, (prompt_words, output_tokens, deadline_s), n_streams, seed, is_chain))
        for number in range(1, rounds + 1):
            found.append(_round(server, arguments, stack, options, oracle.streams(number)))
            said = f"back after {found[-1].answered_after_s:.2f} s"
            outcomes = [outcome_of(stream, oracle.right) for stream in found[-1].streams]
            CONSOLE.print(f"{number}/{rounds}: {outcomes.count('right')} of {n_streams} right, {said}", highlight=False)
    rows = rows_of(found, oracle.right)
    print_report(rows, model, CONSOLE)
    errors = sorted({stream.error for one in found for stream in one.streams if stream.error})
    facts = {"model": model, "gpus": gpus, "server_args": server_args, "streams": n_streams, "output_tokens": output_tokens}
    facts |= {"seed": seed, "errors": errors[:_ERRORS]}
    write_json({"bench": "everything", "machine": describe_machine(), **as_json(rows, facts)}, out)
    is_right = all(outcome_of(stream, oracle.right) == "right" for one in found for stream in one.streams)  # also early ends
    raise SystemExit(0 if is_right else 1)


async def _prepared(
    server: OwnServer, sizes: tuple[int, int, float], n_streams: int, seed: int, is_chain: bool
) -> tuple[StreamRequest, Oracle]:
    """What clients ask, and the right answers. Raises: ConfigError where a model does not answer the same twice."""
    async with httpx.AsyncClient() as http:
        model = await find_model(http, server.url)
    options = StreamRequest(server.url, model, *sizes, ignores_end=True, api_key="")
    oracle = Oracle(options, n_streams, 0.5, seed)
    if not is_chain:
        await oracle.learn()
    return options, oracle


def _round(
    server: OwnServer, arguments: list[str], stack: ExitStack, options: StreamRequest, streams: list[DrillStream]
) -> Round:
    """All streams, and the deaths and the start in their middle. The server that is started stays.

    Clients have a thread of their own: a server ends when the thread that has started it ends.
    """
    are_midway = threading.Event()
    with ThreadPoolExecutor(1) as clients:
        reading = clients.submit(asyncio.run, _read(server, options, streams, are_midway))
        reading.add_done_callback(lambda done: are_midway.set())
        are_midway.wait()
        at_s = time.monotonic()
        kill_all(server)
        stack.enter_context(own_server(arguments, port=server.port))
        answered_after_s = asyncio.run(_answered(options)) - at_s
        reading.result()
    return Round(_FAULT, "all", at_s, answered_after_s, streams)


async def _answered(options: StreamRequest) -> float:
    """When the server answers a request, by the monotonic clock."""
    async with httpx.AsyncClient() as http:
        while not await is_answering(http, options):
            await asyncio.sleep(_POLL_S)
    return time.monotonic()


async def _read(server: OwnServer, options: StreamRequest, streams: list[DrillStream], are_midway: threading.Event) -> None:
    """Read all streams to their ends. `are_midway` is set when each has a quarter of its tokens."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        httpx.AsyncClient(timeout=options.deadline_s, limits=limits) as http,
        AsyncClient(zeromq_endpoint(server.run_dir, 0)) as zmq,
    ):
        await zmq.models()  # a client that has never been connected gives up while its gateway restarts
        tasks = [asyncio.create_task(_follow(http, zmq, options, stream, n)) for n, stream in enumerate(streams)]
        least = options.max_tokens // 4
        while not all(len(stream.arrivals_s) > least or task.done() for stream, task in zip(streams, tasks, strict=True)):
            await asyncio.sleep(_POLL_S)
        are_midway.set()
        await asyncio.gather(*tasks)


async def _follow(http: httpx.AsyncClient, zmq: AsyncClient, options: StreamRequest, stream: DrillStream, number: int) -> None:
    if number % 3 == 0:
        return await follow_zmq(zmq, options, stream)
    stream.key = f"{time.time_ns()} {number}" if number % 3 == 1 else ""
    await follow_through(http, options, stream)


def kill_all(server: OwnServer) -> None:
    """kill -9 of every process of this server, within about a millisecond, and wait until none is left.

    Raises: TimeoutError.
    """
    parent = psutil.Process(read_parent_pid(server.run_dir) or server.pid)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if not kill_server(server.run_dir, _DEATH_S):
        raise TimeoutError(f"a process of {server.run_dir} is still alive {_DEATH_S:g} s after it was killed")
