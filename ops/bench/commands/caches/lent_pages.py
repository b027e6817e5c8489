"""`lent-pages`: the first token of a prompt that another replica has: computed, and with its pages from the exchange, in turns.

python -m ops.bench lent-pages --gpus 0 --tokens 512                                    the packaged model, two replicas on CPUs
python -m ops.bench lent-pages --gpus 2 --model CONFIG_DIR --server-arg=--load-format=random
CUDA_VISIBLE_DEVICES=0,0 python -m ops.bench lent-pages --gpus 2 --server-arg=--set --server-arg=worker.kv_memory_bytes=8GiB ...

The last one has both replicas on one GPU. Each prompt is asked twice: first with one replica cordoned, then with the other one.
"""

from __future__ import annotations

import asyncio

import click
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from ops.bench.returning.conversations import AskedServer, TurnFailed, make_prompts
from supervisor.bench.serve_load import CONSOLE, write_json
from supervisor.bench.statistics import summarize
from supervisor.operator.calls import ask_cordon, ask_status

_TOLD_S = 1.0  # gateways hear of a cordon, and schedulers tell of their figures, within this time
_WAYS = ("computed", "lent")
_FIGURES = ("exchange_moved", "exchange_failed")


@click.command(context_settings={"show_default": True})
@click.option("--gpus", default=0, help="0: CPU cores.")
@click.option("--model", default="", help="As for `supervisor start`; empty: the packaged model.")
@click.option("--server-arg", "server_args", multiple=True, help="May be repeated.")
@click.option("--tokens", "n_tokens", type=click.IntRange(min=17), default=4096, help="Of each prompt.")
@click.option("--prompts", "n_prompts", type=click.IntRange(min=1), default=4, help="Of each turn.")
@click.option("--turns", type=click.IntRange(min=2), default=8, help="The replicas by turns; the first two are not counted.")
@click.option("--exchange", default="2GiB", help="Memory of the exchange of each rank.")
@click.option("--seed", default=0)
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    gpus: int, model: str, server_args: tuple[str, ...], n_tokens: int, n_prompts: int, turns: int, exchange: str, seed: int,
    out: str | None,
) -> None:  # fmt: skip
    """First tokens of prompts that another replica has computed: computed again, and from its pages."""
    flags = ["--gpus", str(gpus), "--replicas", "2", "--no-standby", "--no-speculation", "--max-length", str(n_tokens + 64)]
    flags += ["--set", f"worker.exchange_bytes={exchange}", *(["--model", model] if model else []), *server_args]
    prompts = make_prompts(turns * n_prompts, n_tokens, seed)
    try:
        with own_server(flags) as server:
            asked = asyncio.run(_turns(server, prompts, n_prompts))
            moved, failed = _figures(server)
    except (ServerDidNotStart, TurnFailed) as error:
        raise click.ClickException(str(error)) from None
    counted = asked.first_s[2 * n_prompts :]
    firsts = {way: summarize([firsts[index] for firsts in counted]) for index, way in enumerate(_WAYS)}
    result = {
        "first_token_ms": {way: summary.scaled(1e3, 2) for way, summary in firsts.items() if summary is not None},
        "moved_pages": moved,
        "failed_pages": failed,
        "equal_answers": sum(first == again for first, again in asked.answers),
        "compared_answers": len(asked.answers),
    }
    _show(result, n_tokens)
    options = {"model": model or "smollm2", "gpus": gpus, "tokens": n_tokens, "exchange": exchange, "turns": turns}
    write_json({"bench": "lent-pages", "machine": describe_machine(), **options, **result}, out)


async def _turns(server: OwnServer, prompts: list[list[int]], n_each: int) -> AskedServer:
    """Every prompt, asked at one replica and then at the other one, which gets the pages of the first."""
    asked = AskedServer(server, len(prompts), 8)
    try:
        for begin in range(0, len(prompts), n_each):
            home = begin // n_each % 2
            for replica in (home, 1 - home):
                await _use_only(server, replica)
                for number in range(begin, begin + n_each):
                    await asked.ask(number, prompts[number])
        await asyncio.sleep(_TOLD_S)
    finally:
        await asked.close()
    return asked


async def _use_only(server: OwnServer, replica: int) -> None:
    for each, is_cordoned in ((replica, False), (1 - replica, True)):
        if refusal := await asyncio.to_thread(ask_cordon, server.run_dir, each, is_cordoned=is_cordoned):
            raise TurnFailed(f"replica {each}: expected a change of its cordon, got {refusal}")
    await asyncio.sleep(_TOLD_S)


def _figures(server: OwnServer) -> list[int]:
    """Pages that replicas have got from each other, and those that could not be used."""
    schedulers = [child for child in ask_status(server.run_dir).children if child.name.startswith("scheduler/")]
    return [int(sum(child.statistics.get(name, 0) for child in schedulers)) for name in _FIGURES]


def _show(result: dict, n_tokens: int) -> None:
    table = Table(title=f"first token, ms: {n_tokens:,} tokens", title_justify="left")
    for column in ("", "p50", "p90", "max"):
        table.add_column(column, justify="right" if column else "left")
    for way, numbers in result["first_token_ms"].items():
        table.add_row(way, *(f"{numbers[column]:.1f}" for column in ("p50", "p90", "max")))
    CONSOLE.print(table)
    CONSOLE.print(f"pages moved: {result['moved_pages']:,}; failed: {result['failed_pages']}")
    CONSOLE.print(f"answers equal: {result['equal_answers']} of {result['compared_answers']}")
