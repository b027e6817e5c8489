"""`returning`: conversations that return after others have taken their pages: the first token, computed and from the host tier.

python -m ops.bench returning --gpus 0 --tokens 512 --device-cache 64MiB --host-cache 512MiB          the packaged model
python -m ops.bench returning --gpus 1 --model CONFIG_DIR --server-arg=--load-format=random           a large one on a GPU

Two servers on one machine, one without a host tier, are asked in turns: each conversation of one, then of the other. Together
the prompts must be larger than the device's cache, and smaller than the host's; or smaller than `--disk-cache`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import click
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.returning.conversations import AskedServer, TierFigures, TurnFailed, make_prompts
from ops.bench.returning.shares import LOG_FLAGS, first_token_shares, read_requests
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize

_PINNED_S = 120.0
_TOLD_S = 3.0  # a scheduler tells of its figures about once a second


@click.command(context_settings={"show_default": True})
@click.option("--gpus", default=0, help="Of each server; 0: CPU cores.")
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--server-arg", "server_args", multiple=True, help="For both servers; may be repeated.")
@click.option("--conversations", type=click.IntRange(min=2), default=8)
@click.option("--tokens", "n_tokens", type=click.IntRange(min=17), default=4096, help="Of each prompt.")
@click.option("--new-tokens", "n_new", type=click.IntRange(min=1), default=4, help="Of each answer.")
@click.option("--device-cache", default="2GiB", help="Memory for keys and values of each server.")
@click.option("--host-cache", default="8GiB", help="Of the server that has a host tier.")
@click.option("--host-cache-dtype", "dtype", default="same", help="What that host tier holds, as for `supervisor start`.")
@click.option("--disk-cache", default="", help="Of that server; empty: it has no disk tier.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="In which every conversation returns.")
@click.option(
    "--warm-rounds", type=click.IntRange(min=1), default=1, help="Before them, not counted; all is computed in the first."
)
@click.option("--always", is_flag=True, help="Load also where that is expected to be slower than to compute.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    gpus: int, model: str, server_args: tuple[str, ...], conversations: int, n_tokens: int, n_new: int, device_cache: str,
    host_cache: str, dtype: str, disk_cache: str, rounds: int, warm_rounds: int, always: bool, seed: int, out: str | None,
) -> None:  # fmt: skip
    """First tokens of conversations that return, computed and from the host tier, in turns."""
    flags = [*LOG_FLAGS, "--gpus", str(gpus), "--no-standby", "--max-length", str(n_tokens + n_new + 16)]
    flags += ["--set", f"worker.kv_memory_bytes={device_cache}", *(["--model", model] if model else []), *server_args]
    tier_flags = ["--host-cache", host_cache, "--host-cache-dtype", dtype]
    tier_flags += ["--disk-cache", disk_cache] if disk_cache else []
    tier_flags += ["--set", "scheduler.tier_loads=always"] if always else []
    prompts = make_prompts(conversations, n_tokens, seed)
    try:
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(own_server([*flags, *more])) for more in ([], tier_flags)]
            if gpus:
                _wait_pinned(servers[1])
            result = _result(*asyncio.run(_turns(servers, prompts, n_new, rounds, warm_rounds)))  # reads their logs
    except (ServerDidNotStart, TurnFailed) as error:
        raise click.ClickException(str(error)) from None
    _show(result, f"{n_tokens:,} tokens, {conversations} conversations, {rounds} rounds")
    options = {"model": model or "smollm2", "gpus": gpus, "tokens": n_tokens, "conversations": conversations}
    options |= {"device_cache": device_cache, "host_cache": host_cache, "host_cache_dtype": dtype, "disk_cache": disk_cache}
    options |= {"rounds": rounds, "always": always}
    options |= {"server_args": list(server_args)}
    write_json({"bench": "returning", "machine": describe_machine(), **options, **result}, out)


def _wait_pinned(server: OwnServer) -> None:
    """A GPU's host tier is used once its memory is pinned, which the log tells. Raises: ServerDidNotStart."""
    end_s = time.monotonic() + _PINNED_S
    while "host tier ready" not in server.log.read_text():
        if time.monotonic() > end_s:
            raise ServerDidNotStart(f"the memory of the host tier is not pinned after {_PINNED_S:g} s; see {server.log}")
        time.sleep(0.1)


async def _turns(
    servers: list[OwnServer], prompts: list[list[int]], n_new: int, rounds: int, warm_rounds: int
) -> tuple[AskedServer, AskedServer, TierFigures, TierFigures]:
    """(the server that computes, the one with a tier, figures of its tier before the measured rounds and after them)."""
    computed, loaded = (AskedServer(server, len(prompts), n_new) for server in servers)
    try:
        for _ in range(warm_rounds):
            await _round((computed, loaded), prompts)
        for asked in (computed, loaded):
            asked.forget()
            asked.skip_log()
        before = await _told(loaded)
        for _ in range(rounds):
            await _round((computed, loaded), prompts)
        return computed, loaded, before, await _told(loaded)
    finally:
        await computed.close()
        await loaded.close()


async def _round(both: tuple[AskedServer, AskedServer], prompts: list[list[int]]) -> None:
    for number, prompt in enumerate(prompts):
        for asked in both:
            await asked.ask(number, prompt)


async def _told(asked: AskedServer) -> TierFigures:
    await asyncio.sleep(_TOLD_S)
    return await asyncio.to_thread(asked.tier)


def _result(computed: AskedServer, loaded: AskedServer, before: TierFigures, after: TierFigures) -> dict:
    pairs = list(zip(computed.answers, loaded.answers, strict=True))
    n_equal = sum(answer == first for (first, *more), others in pairs for answer in (*more, *others))
    n_compared = sum(len(ours) - 1 + len(others) for ours, others in pairs)
    n_loaded, load_s = after.loaded - before.loaded, after.load_s - before.load_s
    firsts = {
        name: summarize([first for turns in asked.first_s for first in turns])
        for name, asked in (("computed", computed), ("from the tier", loaded))
    }
    return {
        "first_token_ms": {name: summary.scaled(1e3, 2) for name, summary in firsts.items() if summary is not None},
        "shares_ms": {
            name: first_token_shares(read_requests(*asked.log), [first for turns in asked.first_s for first in turns])
            for name, asked in (("computed", computed), ("from the tier", loaded))
        },
        "stored_pages": after.stored - before.stored, "loaded_pages": n_loaded, "failed_pages": after.failed - before.failed,
        "load_us_per_page": round(load_s / n_loaded * 1e6, 1) if n_loaded else None,
        "sequences_ahead": after.ahead - before.ahead,
        "equal_answers": n_equal, "compared_answers": n_compared, "ended": time.strftime("%F %T"),
    }  # fmt: skip


def _show(result: dict, title: str) -> None:
    table = Table(title=f"first token, ms: {title}", title_justify="left")
    for column in ("", "p50", "p90", "max"):
        table.add_column(column, justify="right" if column else "left")
    for name, numbers in result["first_token_ms"].items():
        table.add_row(name, *(f"{numbers[column]:.1f}" for column in ("p50", "p90", "max")))
    CONSOLE.print(table)
    for name, shares in result["shares_ms"].items():
        parts = ", ".join(f"{part.replace('_', ' ')} {ms:.1f}" for part, ms in shares.items())
        CONSOLE.print(f"medians of the parts, ms, {name}: {parts or 'not known'}")
    per_page = f", {result['load_us_per_page']} us each" if result["load_us_per_page"] else ""
    CONSOLE.print(f"pages loaded: {result['loaded_pages']:,}{per_page}; failed: {result['failed_pages']}")
    CONSOLE.print(f"first tokens planned behind their loads: {result['sequences_ahead']}")
    CONSOLE.print(
        f"stored: {result['stored_pages']:,}; answers equal: {result['equal_answers']} of {result['compared_answers']}"
    )
