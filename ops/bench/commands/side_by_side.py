"""`side-by-side`: this server and others on one machine, with the same client, prompts and lengths, by turns."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, fields

import click
from rich.table import Table

from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart
from ops.bench.peers.peer_server import PeerServer, our_server, peer_server
from ops.bench.peers.turns import Figures, Workload, take_turns
from supervisor.bench.serve_load import CONSOLE, write_json


@click.command(context_settings={"show_default": True})
@click.option("--own", "own", multiple=True, help="NAME=ARGUMENTS of `supervisor start` on CPU cores; repeatable.")
@click.option("--peer", "peers", multiple=True, help="NAME=COMMAND of another server, with {port} in it; repeatable.")
@click.option("--streams", default="1,8,32", help="Streams side by side, of random token ids.")
@click.option("--chat-streams", default="1", help="Chats side by side; empty: none.")
@click.option("--prompt-tokens", default=128)
@click.option("--new-tokens", default=64)
@click.option("--waves", default=2, help="Requests of each stream in a turn, one after the other; at least 4 requests.")
@click.option("--turns", default=3, help="Each server's turns at each workload; medians count.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    own: tuple[str, ...], peers: tuple[str, ...], streams: str, chat_streams: str, prompt_tokens: int, new_tokens: int,
    waves: int, turns: int, out: str | None,
) -> None:  # fmt: skip
    """Speed, latency, processor time and memory of several servers, which all run during the whole measurement."""
    sizes = [("completions", size) for size in _numbers(streams)] + [("chat", size) for size in _numbers(chat_streams)]
    machine, rows = describe_machine(), []
    try:
        with contextlib.ExitStack() as stack:
            ours = [stack.enter_context(our_server(*_named("--own", one))) for one in own]
            servers = ours + [stack.enter_context(peer_server(*_named("--peer", one))) for one in peers]
            _take_turns(servers, [Workload("completions", 1, 16, 4, 1)], 1)  # warms them
            rows = _take_turns(servers, [Workload(kind, n, prompt_tokens, new_tokens, waves) for kind, n in sizes], turns)
    except (ServerDidNotStart, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    result = {
        "bench": "side-by-side", "machine": machine, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens,
        "waves": waves, "turns": turns, "own": own, "peers": peers,
        "start_s": {server.name: round(server.start_s, 2) for server in servers}, "rows": rows,
    }  # fmt: skip
    _show(result)
    write_json(result, out)


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one.strip()]


def _named(option: str, text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise ValueError(f"{option}: expected NAME=..., got {text}")
    return name, value


def _take_turns(servers: list[PeerServer], works: list[Workload], turns: int) -> list[dict]:
    rows = []
    for work in works:
        for server, figures in zip(servers, take_turns(servers, work, turns), strict=True):
            rows.append({"work": work.title, "server": server.name, **asdict(figures)})
            CONSOLE.print(rows[-1], highlight=False)
    return rows


def _show(result: dict) -> None:
    title = f"{result['prompt_tokens']} -> {result['new_tokens']} tokens, medians of {result['turns']} turns"
    table = Table(title=title, title_justify="left")
    for column in ("work", "server", *(one.name.replace("_", " ") for one in fields(Figures))):
        table.add_column(column, justify="left" if column in ("work", "server") else "right")
    for row in result["rows"]:
        table.add_row(row["work"], row["server"], *(f"{row[one.name]:.1f}" for one in fields(Figures)))
    CONSOLE.print(table)
    CONSOLE.print(f"started after, s: {result['start_s']}", highlight=False)
