"""`supervisor top`: one screen, once a second, until q. It goes on while actors or the whole server are away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import reach, run_dir_for, server_flags
from supervisor.shell.interrupts import Interrupts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from messages.lifecycle.tree import StatusReport
    from supervisor.top.figures import TopFigures, Trends
    from supervisor.top.screen import View

_EVERY_S = 1.0
_PATIENCE_S = 0.3  # for which a new screen waits for the answer
_ANSWER_S = 5.0


@click.command(cls=CommandWithHints, short_help="Watch a server on one screen.")
@click.option("--once", is_flag=True, help="Print one screen and end. So it is without a terminal, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as a line of JSON each second, or once.")
@server_flags
def top(once: bool, as_json: bool, port: int, run_dir: Path | None) -> None:
    """Watch a server: tokens and requests a second, queue, caches, GPUs, and each process with its lives and the cause of its
    last death.

    Keys: q quits, p pauses, s sorts the processes by trouble, deaths or memory. Any size of terminal from 80 x 24 on.

    \b
    Exit status:
      0  ended by q or Ctrl-C
      6  no server was found
    """
    with Interrupts() as interrupts:
        from supervisor.operator import calls
        from supervisor.top.figures import Trends

        where, trends = run_dir_for(port, run_dir), Trends()
        once = once or not (as_json or sys.stdout.isatty())
        figures = trends.screen(reach(lambda: calls.ask_status(where)), time.monotonic())
        if once or as_json:
            _print(where, trends, once, as_json, interrupts)
        else:
            _watch(where, trends, figures, interrupts)


def _print(where: Path, trends: Trends, once: bool, as_json: bool, interrupts: Interrupts) -> None:
    import msgspec

    from supervisor.operator import calls

    while not interrupts.has_come:
        time.sleep(_EVERY_S)  # a rate needs two reports
        figures = trends.screen(reach(lambda: calls.ask_status(where)), time.monotonic())
        if as_json:
            click.echo(msgspec.json.encode(figures).decode())
        else:
            _print_screen(figures)
        if once:
            return


def _print_screen(figures: TopFigures) -> None:
    from rich.console import Console

    from supervisor.top.screen import View, drawn

    console = Console()
    n_lines = 12 + len(figures.children) + len(figures.gpus)
    console.print(drawn(figures, View(console.width, n_lines, has_keys=False)))


def _watch(where: Path, trends: Trends, figures: TopFigures, interrupts: Interrupts) -> None:
    from rich.console import Console
    from rich.live import Live

    from supervisor.top.keys import Keys
    from supervisor.top.screen import View, drawn

    console, view = Console(), View()
    source = _Source(where, trends, figures)
    next_s = time.monotonic() + _EVERY_S
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not interrupts.has_come:
            size = console.size
            live.update(drawn(source.figures, _resized(view, size.width, size.height)), refresh=True)
            for key in keys.wait(next_s - time.monotonic()):
                if key in "qQ":
                    return
                view = _after(view, key)
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + _EVERY_S
                if not view.is_paused:
                    source.renew()


def _resized(view: View, width: int, height: int) -> View:
    from dataclasses import replace

    return replace(view, width=width, height=height)


def _after(view: View, key: str) -> View:
    """The view after a key was pressed."""
    from dataclasses import replace

    if key in "pP":
        return replace(view, is_paused=not view.is_paused)
    return replace(view, sort=view.sort.next) if key in "sS" else view


class _Source:
    """The figures of a server. It is asked on a thread, so that keys are heard while it is away."""

    def __init__(self, where: Path, trends: Trends, figures: TopFigures) -> None:
        self.figures = figures
        self._where, self._trends = where, trends
        self._asked: Future[StatusReport] | None = None
        self._answered_s = time.monotonic()

    def renew(self) -> None:
        """Ask for new figures; without an answer the old ones say for how long there was none."""
        from concurrent.futures import Future, wait

        import msgspec

        from supervisor.operator import calls

        if self._asked is None:
            self._asked = Future()
            Thread(target=_ask, args=(self._asked, lambda: calls.ask_status(self._where, _ANSWER_S)), daemon=True).start()
        wait([self._asked], _PATIENCE_S)
        now_s = time.monotonic()
        if self._asked.done():
            asked, self._asked = self._asked, None
            if asked.exception() is None:
                self.figures, self._answered_s = self._trends.screen(asked.result(), now_s), now_s
                return
        self.figures = msgspec.structs.replace(self.figures, no_answer_s=now_s - self._answered_s)


def _ask(asked: Future[StatusReport], call: Callable[[], StatusReport]) -> None:
    try:
        asked.set_result(call())
    except Exception as error:
        asked.set_exception(error)
