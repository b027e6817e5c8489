"""Shows how a download goes: a bar with bytes, pace and the time left on a terminal, else a line for each tenth."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

_TENTHS = 10


class TransferView:
    """The progress of one model, on standard error.."""

    def __init__(self, name: str, out: TextIO = sys.stderr) -> None:
        self._name, self._out, self._tenth = name, out, 0
        self._progress: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> TransferView:
        if self._out.isatty():
            self._progress = _new_bars(self._out)
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def told(self, n_bytes: int, of_bytes: int) -> None:
        """So many bytes of the large files are here."""
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task(self._name, total=of_bytes)
            self._progress.update(self._task, completed=n_bytes, total=of_bytes)
            return
        tenth = n_bytes * _TENTHS // max(1, of_bytes)
        if tenth > self._tenth:
            self._tenth = tenth
            print(f"{self._name}: {n_bytes / 1e6:,.1f} of {of_bytes / 1e6:,.1f} MB", file=self._out, flush=True)


def _new_bars(out: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(file=out), transient=True)
