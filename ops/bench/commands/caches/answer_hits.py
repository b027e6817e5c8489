"""`answer-hits`: how long an answer takes that is kept, and what the cache of answers costs a request that it does not have.

Two servers take turns, one without the cache and one with `--answer-cache exact`. One client asks one request after the other:
the same few ones again, streamed and whole, and requests that come once. Hits have three times: at the client; inside the
gateway, from the last byte of the request to the last byte of its answer (`tardigrade_answer_hit_seconds`); and as a part of
that, from the accepted request until all of its tokens are visible (`total_ms` of the access log), with those of a stream in
the journal.

python -m ops.bench answer-hits
python -m ops.bench answer-hits --requests 5000 --input 2048 --server-arg=--set --server-arg=gateway.journal_sync=true
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.table import Table

from messages.ids import role_of
from messages.metrics import quantile_of
from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.returning.shares import LOG_FLAGS, LoggedRequest, read_requests
from ops.bench.told_metrics import by_label
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import percentile, summarize
from supervisor.operator.calls import ask_status

_N_KEPT = 16  # different requests that are asked for again
_N_TOKENS = 64
_VOCABULARY = 1000
_TURNS = 10  # of misses at each server
_LOG_S = 30.0  # until all requests stand in the log
_ANSWER_S = 60.0
_HISTOGRAM, _GOAL_S = "tardigrade_answer_hit_seconds", 0.001


@click.command(context_settings={"show_default": True})
@click.option("--requests", type=click.IntRange(min=1), default=2000, help="Hits of each form.")
@click.option("--misses", "n_misses", type=click.IntRange(min=_TURNS), default=400, help="Of each server.")
@click.option("--input", "n_prompt", type=click.IntRange(min=1), default=128, help="Tokens of a prompt.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(requests: int, n_misses: int, n_prompt: int, server_args: tuple[str, ...], out: str | None) -> None:
    """Times of answers that are kept, at the client and in the gateway, and processor time of requests that are not."""
    machine, rng = describe_machine(), random.Random(1)
    flags = ["--model", "hash-chain", "--no-speculation", "--max-length", "8192", *LOG_FLAGS, *server_args]
    try:
        with own_server(flags) as plain, own_server([*flags, "--answer-cache", "exact"]) as keeping:
            at_plain, at_keeping = _HitClient(plain), _HitClient(keeping)
            kept = [_body(n_prompt, rng) for _ in range(_N_KEPT)]
            for body in kept:
                at_keeping.ask(body)
            hits = {name: _hits(at_keeping, kept, requests, is_streamed) for name, is_streamed in _FORMS.items()}
            misses = _misses(at_plain, at_keeping, n_prompt, n_misses, rng)
    except ServerDidNotStart as error:
        raise click.ClickException(str(error)) from None
    load = round(os.getloadavg()[0], 1)
    _show(hits, misses, load)
    sizes = {
        "requests": requests,
        "misses_of_each": n_misses,
        "input": n_prompt,
        "output": _N_TOKENS,
        "server_args": server_args,
    }
    write_json({"bench": "answer-hits", "machine": machine, "load_after": load, **sizes, "hits": hits, "misses": misses}, out)


_FORMS = {"whole": False, "streamed": True}


class _HitClient:
    """One connection to a server."""

    def __init__(self, server: OwnServer) -> None:
        self.server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_ANSWER_S)
        children = ask_status(server.run_dir).children
        self._gateway_pid = next(int(child.pid) for child in children if role_of(child.name) == "gateway")

    def ask(self, body: dict[str, Any]) -> tuple[float, bool]:
        """Ask, and read all of the answer. Returns the seconds that it took, and whether it was kept."""
        raw = json.dumps(body).encode()
        began_s = time.perf_counter()
        self._connection.request("POST", "/v1/completions", raw, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        took_s = time.perf_counter() - began_s
        if answer.status != 200:
            raise click.ClickException(f"HTTP {answer.status}: {text[:500]!r}")
        return took_s, answer.headers.get("X-Cache") == "hit"

    def gateway(self) -> _Spent:
        """What all threads of its gateway have spent so far."""
        ran_ns = waited_ns = 0
        for task in Path(f"/proc/{self._gateway_pid}/task").iterdir():
            with suppress(FileNotFoundError):  # a thread that has ended
                ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
                ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
        return _Spent(ran_ns / 1e6, waited_ns / 1e6)


class _Spent(NamedTuple):
    """Milliseconds of threads: on a processor, and ready to run without getting one, because others had it."""

    cpu_ms: float
    wait_ms: float

    def each(self, before: _Spent, n: int) -> _Spent:
        """What has been spent since `before`, for each of `n` requests."""
        return _Spent(round((self.cpu_ms - before.cpu_ms) / n, 4), round((self.wait_ms - before.wait_ms) / n, 4))


def _body(n_prompt: int, rng: random.Random) -> dict[str, Any]:
    return {"prompt": [rng.randrange(_VOCABULARY) for _ in range(n_prompt)], "max_tokens": _N_TOKENS, "temperature": 0.0}


def _hits(asker: _HitClient, kept: Sequence[dict[str, Any]], n: int, is_streamed: bool) -> dict[str, Any]:
    first_byte, at_client_s, told_before = asker.server.log.stat().st_size, [], _hit_counts(asker)
    before = asker.gateway()
    for number in range(n):
        took_s, is_hit = asker.ask({**kept[number % len(kept)], "stream": is_streamed})
        if not is_hit:
            raise click.ClickException("an answer that should be kept was computed")
        at_client_s.append(took_s)
    spent = asker.gateway().each(before, n)
    visible_s = [(one.total_ms or 0.0) / 1e3 for one in _logged_hits(asker.server.log, first_byte, n)]
    told = _hit_counts(asker)
    counts = [after - told_before.get(bound, 0.0) for bound, after in sorted(told.items())]
    found = {
        "at_client_ms": _ms(at_client_s),
        "in_gateway_ms": _told_ms(sorted(told), counts),
        "until_visible_ms": _ms(visible_s),
    }
    return {**found, "gateway_cpu_ms": spent.cpu_ms, "gateway_wait_ms": spent.wait_ms, "load": round(os.getloadavg()[0], 1)}


def _logged_hits(log: Path, first_byte: int, n: int) -> list[LoggedRequest]:
    """The hits that the server logs, which it does a little later."""
    end_s = time.monotonic() + _LOG_S
    while True:
        found = [one for one in read_requests(log, first_byte) if one.cache == "hit"]
        if len(found) >= n:
            return found
        if time.monotonic() > end_s:
            raise click.ClickException(f"of {n} hits the server has logged {len(found)}")
        time.sleep(0.1)


def _misses(plain: _HitClient, keeping: _HitClient, n_prompt: int, n: int, rng: random.Random) -> dict[str, list[float]]:
    """Processor milliseconds of the gateway for each request that comes once, of each turn, and the median of both servers."""
    turns: dict[str, list[float]] = {"off": [], "exact": []}
    for _ in range(_TURNS):
        for name, asker in rng.sample([("off", plain), ("exact", keeping)], 2):
            bodies = [_body(n_prompt, rng) for _ in range(n // _TURNS)]
            before = asker.gateway()
            for body in bodies:
                if asker.ask(body)[1]:
                    raise click.ClickException("a request that comes once had a kept answer")
            turns[name].append(asker.gateway().each(before, len(bodies)).cpu_ms)
    return turns


def _hit_counts(asker: _HitClient) -> dict[float, float]:
    """How many kept answers the gateway has given so far in each bucket of its histogram, by the bucket's upper bound."""
    with urllib.request.urlopen(f"{asker.server.url}/metrics", timeout=_ANSWER_S) as answer:
        told = by_label(answer.read().decode(), f"{_HISTOGRAM}_bucket", "le")
    below = sorted((float(bound), n) for bound, n in told.items())
    return {bound: n - (below[at - 1][1] if at else 0.0) for at, (bound, n) in enumerate(below)}


def _told_ms(bounds: Sequence[float], counts: Sequence[float]) -> dict[str, float]:
    """Quantiles of buckets, the last of which has no bound, and the part of all within 1 ms."""
    known = [bound * 1e3 for bound in bounds[:-1]]
    within = sum(n for bound, n in zip(bounds, counts, strict=True) if bound <= _GOAL_S)
    quantiles = {f"p{q}": round(quantile_of(known, counts, q / 100), 3) for q in (50, 90, 99)}
    return {"count": sum(counts), **quantiles, "within_1_ms": round(within / max(sum(counts), 1.0), 4)}


def _ms(seconds: Sequence[float]) -> dict[str, float]:
    summary = summarize(seconds)
    return {} if summary is None else summary.scaled(1e3)


def _show(hits: dict[str, dict[str, Any]], misses: dict[str, list[float]], load: float) -> None:
    table = Table("a kept answer", "p50, ms", "p99, ms", "max, ms", title=f"load {load}", title_justify="left")
    for form, found in hits.items():
        for place in ("until_visible_ms", "in_gateway_ms", "at_client_ms"):
            times = found[place]
            shown = (f"{times[name]:.3f}" if name in times else "" for name in ("p50", "p99", "max"))
            table.add_row(f"{form}, {place.removesuffix('_ms')}", *shown)
    CONSOLE.print(table)
    medians = ", ".join(f"{name} {percentile(sorted(turns), 0.5):.3f} ms" for name, turns in misses.items())
    spent = ", ".join(
        f"{form} {found['gateway_cpu_ms']:.3f} ms (and {found['gateway_wait_ms']:.3f} ms of waiting for a processor)"
        for form, found in hits.items()
    )
    CONSOLE.print(f"processor time of the gateway: a hit {spent}; a miss, by the cache (median of the turns): {medians}")
