"""`survival-cost`: what surviving costs while nothing fails: the same server with all of it, and with each part turned off.

The servers take turns, each started anew: same model, same prompts, same streams over HTTP. Processor time is that of all
processes of a server, so that it can be compared on a machine that does other work too; on a GPU, whose work it does not
contain, the tokens per second count. Other work makes each step dearer, because it takes caches and memory bandwidth: so of all
rounds of a variant the one that took the least processor time counts.

What has no setting (acknowledgements and echoes of links, beats, inventories) is in every variant: the processor time of the
idle server is theirs, and the table of roles says where the rest goes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import click
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from supervisor.bench.serve_load import CONSOLE, LoadPlan, measure, write_json
from supervisor.directories.run_dir_files import read_pid
from supervisor.operator.calls import ask_status

_OFF = {
    "all of it": (),
    "no journal of streams": ("--set", "gateway.journal_http_streams=false"),
    "no custodian": ("--set", "hold_connections=false"),
    "no standby": ("--no-standby",),
    "no standby, no vault": ("--no-standby", "--no-vault"),
    "no spares": ("--set", "supervisor.spares=false"),
}
_NOTHING = "none of it"
VARIANTS: Mapping[str, tuple[str, ...]] = {
    **_OFF, _NOTHING: tuple(argument for name in _OFF if name != "no standby" for argument in _OFF[name])
}  # fmt: skip
_ASK_S = 30.0
_CPUCLOCK_SCHED = 2  # of the clock that `clock_getcpuclockid` names for a process


@click.command(context_settings={"show_default": True})
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--gpus", default="0", help="As for `supervisor start`.")
@click.option("--streams", default=8)
@click.option("--prompt-tokens", default=64)
@click.option("--new-tokens", default=128)
@click.option("--rounds", default=3, help="Measurements of each server; after one that does not count.")
@click.option("--repeats", default=3, help="Servers of each variant, in turns; the best round of all counts.")
@click.option("--idle-s", default=5.0, help="Seconds without requests, for the cost of an idle server.")
@click.option("--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)), help="Only these; repeatable.")
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, gpus: str, streams: int, prompt_tokens: int, new_tokens: int, rounds: int, repeats: int, idle_s: float,
    variants: tuple[str, ...], server_args: tuple[str, ...], out: str | None,
) -> None:  # fmt: skip
    """What surviving costs while nothing fails."""
    common = ["--gpus", gpus, "--log-level", "warning", *server_args, *(["--model", model] if model else [])]
    plan = {"streams": streams, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "rounds": rounds}
    chosen = variants or tuple(VARIANTS)
    found: dict[str, list[dict]] = {name: [] for name in chosen}
    try:
        for turn in range(repeats):
            for name in chosen if turn % 2 == 0 else reversed(chosen):
                with own_server([*common, *VARIANTS[name]]) as server:
                    found[name].append(_measured(server, streams, prompt_tokens, new_tokens, rounds, idle_s))
                _tell(turn, name, found[name][-1])
    except (ServerDidNotStart, ValueError) as error:
        raise click.ClickException(str(error)) from None
    rows = summary(found)
    result = {"bench": "survival-cost", "machine": describe_machine(), "model": model or "smollm2", **plan, "rows": rows}
    _show(result)
    write_json(result | {"found": found}, out)


def summary(found: Mapping[str, list[dict]]) -> list[dict]:
    """One row for each variant: its best round, the median of its idle seconds, and how much less processor time a token took
    than in the first variant."""
    rows: list[dict] = []
    for name, turns in found.items():
        best = min(turns, key=lambda one: one["ms_per_token"])
        of = {key: best[key] for key in ("ms_per_token", "tokens_per_s")}
        of["idle_ms_per_s"] = statistics.median(one["idle_ms_per_s"] for one in turns)
        roles = best["roles"]
        whole = rows[0]["ms_per_token"] if rows else of["ms_per_token"]
        spread = [round(one["ms_per_token"], 4) for one in turns]
        saved = round((whole - of["ms_per_token"]) / whole * 100, 2)
        rows.append({"variant": name, **of, "saved_percent": saved, "each_ms_per_token": spread, "roles": roles})
    return rows


def _measured(server: OwnServer, streams: int, n_in: int, n_out: int, rounds: int, idle_s: float) -> dict:
    """Of the best round: processor time of a token in ms, in all and by role, and tokens/s; ms of processor time in an idle
    second."""
    _load(server, streams, n_in, n_out, seed=0)
    before, began_s = _processor_s(server), time.monotonic()
    time.sleep(idle_s)
    idle_s, idle = time.monotonic() - began_s, _difference(_processor_s(server), before)
    found = [_round(server, streams, n_in, n_out, seed) for seed in range(1, rounds + 1)]
    return min(found, key=lambda one: one["ms_per_token"]) | {"idle_ms_per_s": sum(idle.values()) / idle_s * 1e3}


def _round(server: OwnServer, streams: int, n_in: int, n_out: int, seed: int) -> dict:
    before, began_s = _processor_s(server), time.monotonic()
    _load(server, streams, n_in, n_out, seed)
    wall_s, used, n_tokens = time.monotonic() - began_s, _difference(_processor_s(server), before), streams * n_out
    return {
        "ms_per_token": sum(used.values()) / n_tokens * 1e3,
        "tokens_per_s": n_tokens / wall_s,
        "roles": {role: cpu_s / n_tokens * 1e3 for role, cpu_s in used.items()},
    }


def _load(server: OwnServer, streams: int, n_in: int, n_out: int, seed: int) -> None:
    plan = LoadPlan(
        server.url, requests=streams, concurrency=streams, input_lengths=str(n_in), output_lengths=str(n_out), seed=seed
    )
    if errors := measure(plan)["requests"]["errors"]:
        raise ValueError(f"requests: expected no errors, got {errors}")


def _processor_s(server: OwnServer) -> dict[tuple[str, int], float]:
    """Processor time of each process of a server so far, by name and process id."""
    pids = {(child.name, child.pid) for child in ask_status(server.run_dir, _ASK_S).children}
    pids |= {("supervisor", read_pid(server.run_dir) or 0), ("parent", server.pid)}
    return {(name, pid): processor_s(pid) for name, pid in pids}


def processor_s(pid: int) -> float:
    """Processor time of a process so far, in seconds, of all its threads, also those that have ended. /proc has it in steps of
    10 ms, which is much for one round. Raises: OSError when it has ended."""
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def _difference(after: Mapping[tuple[str, int], float], before: Mapping[tuple[str, int], float]) -> dict[str, float]:
    """Processor time since then, by role. Raises: ValueError if a process was replaced meanwhile."""
    if after.keys() != before.keys():
        raise ValueError(f"processes: expected the same all the time, got {sorted(after.keys() ^ before.keys())}")
    roles: dict[str, float] = {}
    for (name, pid), cpu_s in after.items():
        role = name.partition("/")[0]
        roles[role] = roles.get(role, 0.0) + cpu_s - before[name, pid]
    return roles


def _tell(turn: int, name: str, one: dict) -> None:
    measured = f"{one['ms_per_token']:.4f} ms of processor time a token, {one['tokens_per_s']:.1f} tokens/s"
    CONSOLE.print(f"turn {turn + 1}, {name}: {measured}", highlight=False)


def _show(result: dict) -> None:
    table = Table(title=f"cost of surviving, {result['model']}, {result['streams']} streams", title_justify="left")
    for column in ("variant", "processor ms a token", "less than all", "tokens/s", "idle: ms a second"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for row in result["rows"]:
        table.add_row(
            row["variant"], f"{row['ms_per_token']:.3f}", f"{row['saved_percent']:.1f} %", f"{row['tokens_per_s']:.1f}",
            f"{row['idle_ms_per_s']:.1f}",
        )  # fmt: skip
    CONSOLE.print(table)
    for role, ms in sorted(result["rows"][0]["roles"].items(), key=lambda item: -item[1]):
        CONSOLE.print(f"{role}: {ms:.4f} ms a token", highlight=False)
