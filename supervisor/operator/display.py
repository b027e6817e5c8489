"""What a person at the terminal sees of a start: progress while loading, then where the server listens and a line to copy.

On a terminal a live table of bars; otherwise plain lines. All of it goes to standard error; the log is separate from it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from messages.run_dir import DEFAULT_PORT, front_endpoint, run_dir_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Display:
    """Speaks to a person. `url` and `front` are where clients reach the server."""

    def __init__(self, model_name: str, url: str, front: str, is_live: bool | None = None) -> None:
        self._model_name, self._url, self._front = model_name, url, front
        self._is_live = sys.stderr.isatty() if is_live is None else is_live
        self._progress: Progress | None = None
        self._task_by_name: dict[str, TaskID] = {}
        self._is_starting = True

    def loading(self, name: str, phase: str, fraction: float) -> None:
        """How far a child's start has come. Restarts of a serving tree are for the log, not for the bars."""
        if not (self._is_starting and self._is_live):
            return
        if self._progress is None:
            self._progress = _new_progress()
            self._progress.start()
        if name not in self._task_by_name:
            self._task_by_name[name] = self._progress.add_task(name, total=1.0, phase=phase)
        self._progress.update(self._task_by_name[name], completed=fraction, phase=phase)

    def ready(self, name: str, took_s: float) -> None:
        """A child can serve."""
        self.loading(name, f"ready in {took_s:.1f} s", 1.0)

    def serving(self, after_s: float) -> None:
        """Everybody is ready for the first time: say how to use it."""
        self.close()
        self.say(serving_text(self._model_name, self._url, self._front, after_s))

    def failed(self, reason: str) -> None:
        """The server gives up; `reason` is one line."""
        self.close()
        self.say(f"supervisor: {reason}")

    def say(self, text: str) -> None:
        """One thing to read."""
        with contextlib.suppress(OSError):  # a full disk, or a reader that has gone: the server goes on
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bars away."""
        self._is_starting = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def serving_text(model_name: str, url: str, front: str, after_s: float) -> str:
    """Where it listens, with lines to copy that stream an answer."""
    place = _place_flag(url, front)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    cool = {"max_tokens": 64, "temperature": 0.2}  # at the API's default of 1 a small model soon talks nonsense, and on and on
    body = {"model": model_name, "messages": question, **cool, "stream": True}
    one_call = f"print(Client('{front}').generate('The capital of France is', max_tokens=32, temperature=0.2).text)"
    return "\n".join(
        [
            "",
            f"Tardigrade serves {model_name} after {after_s:.1f} s.",
            f"  HTTP (OpenAI)   {url}/v1",
            f"  ZeroMQ          {front}",
            "",
            "  Try it:",
            f"    curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\",
            f"      -d '{json.dumps(body)}'",
            "",
            f'    python -c "from messages.client import Client; {one_call}"',
            "",
            f"  supervisor status{place}    look at it",
            f"  supervisor stop{place}      finish what runs, then end it (or Ctrl-C here)",
            "",
        ]
    )


def _place_flag(url: str, front: str) -> str:
    """What an operator's command needs to find this server."""
    port = urlsplit(url).port or 0
    if front != front_endpoint(run_dir_of(port), 0):
        return f" --run-dir {Path(front.removeprefix('ipc://')).parent}"
    return "" if port == DEFAULT_PORT else f" --port {port}"


def _new_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(30), TextColumn("{task.fields[phase]}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
