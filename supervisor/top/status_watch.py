"""`supervisor status --watch`: the status again and again on a cleared terminal, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from messages.lifecycle.tree import StatusReport
from supervisor.operator.calls import NoServer, ask_status, is_alive
from supervisor.shell.interrupts import Interrupts

_EVERY_S = 1.0
_CLEAR = "\033[H\033[2J"  # to the upper left corner, and nothing on the screen


def watch_status(where: Path, show: Callable[[StatusReport], None]) -> None:
    """Show the status of the server in a run directory once a second. A supervisor that is being replaced is waited for.

    Raises: NoServer when the server has ended.
    """
    with Interrupts() as interrupts:
        while not interrupts.has_come:
            try:
                report = ask_status(where)
            except NoServer:
                if not is_alive(where):
                    raise
                continue
            if sys.stdout.isatty():
                print(_CLEAR, end="")
            show(report)
            sys.stdout.flush()
            time.sleep(_EVERY_S)
