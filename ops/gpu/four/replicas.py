"""One replica, then four of them with four times the work: throughput, and how evenly the four share it.

`python3 -m ops.gpu.four.replicas --model FOLDER --streams 256`: streams of each replica, all at once, 100 to 1,024 tokens
in and out.
"""

from __future__ import annotations

import time
import urllib.request
from dataclasses import replace
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from supervisor.bench.serve_load import CONSOLE, LoadPlan, measure, write_json

_LENGTHS = "uniform:100:1024"
_BEATS_S, _SETTLE_S = 2.5, 15.0
_METRIC, _SAMPLE = "tardigrade_scheduler_generated_tokens", "tardigrade_scheduler_generated_tokens_total"
_QUIET = (
    "--no-standby",
    "--no-speculation",
    "--set",
    "scheduler.prefix_reuse=false",
    "--max-length",
    "4096",
    "--log-level",
    "warning",
)


@click.command(context_settings={"show_default": True})
@click.option("--model", required=True, help="As for `supervisor start`.")
@click.option("--streams", default=256, help="Of each replica.")
@click.option("--replicas", default=4)
@click.option("--processes", default=8, help="Load processes.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, streams: int, replicas: int, processes: int, server_args: tuple[str, ...], out: str | None
) -> None:  # fmt: skip
    """Throughput of several replicas against that of one."""
    random = () if model == "smollm2" else ("--load-format", "random")
    common = ["--model", model, *random, *_QUIET, *server_args]
    try:
        one, many = (_measured(common, n, streams * n, processes) for n in (1, replicas))
    except (ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None
    ratio = many["tokens_per_s"] / one["tokens_per_s"]
    result = {"model": model.rpartition("/")[2], "streams": streams, "one": one, "many": many, "ratio": round(ratio, 3)}
    CONSOLE.print(result)
    write_json(result | {"bench": "replicas", "machine": describe_machine()}, out)


def _measured(common: list[str], replicas: int, streams: int, processes: int) -> dict[str, Any]:
    with own_server(["--gpus", str(replicas), "--replicas", str(replicas), *common]) as server:
        _load(server, streams, streams // 4, processes, seed=1)
        before = _settled(server.url)
        load = _load(server, streams, streams, processes, seed=2)
        after = _settled(server.url)
    share = [after[name] - before[name] for name in sorted(after)]
    return {
        "replicas": replicas,
        "start_s": round(server.start_s, 2),
        "tokens_per_s": load["output_tokens_per_s"],
        "tokens_of_replicas": share,
        "imbalance": round(max(share) / (sum(share) / len(share)) - 1.0, 4),
    }


def _load(server: OwnServer, streams: int, requests: int, processes: int, seed: int) -> dict[str, Any]:
    plan = LoadPlan(server.url, concurrency=streams, requests=requests, processes=processes, seed=seed)
    plan = replace(plan, input_lengths=_LENGTHS, output_lengths=_LENGTHS)
    result = measure(plan)
    if errors := result["requests"]["errors"]:
        raise ValueError(f"requests: expected no errors, got {errors}")
    return result


def _settled(url: str) -> dict[str, float]:
    """The counts once they stand still: gateways have those of schedulers with the beats."""
    end_s, counts = time.monotonic() + _SETTLE_S, tokens_of_replicas(url)
    while time.monotonic() < end_s:
        time.sleep(_BEATS_S)
        counts, earlier = tokens_of_replicas(url), counts
        if counts == earlier:
            break
    return counts


def tokens_of_replicas(url: str) -> dict[str, float]:
    """Tokens that each scheduler has generated so far, by its name. They are at most two seconds old."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60.0) as reply:
        families = text_string_to_metric_families(reply.read().decode())
        samples = [sample for family in families if family.name == _METRIC for sample in family.samples]
    return {sample.labels["actor"]: sample.value for sample in samples if sample.name == _SAMPLE}


if __name__ == "__main__":
    command()
