"""What a person sees of a start: progress bars while it loads, then where the server listens and commands to copy.

Bars are shown on a terminal only. Everything goes to standard error, and the log is separate from it.
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
    """Prints for a person. `url`: where HTTP clients reach the server; `front`: where ZeroMQ clients do. `is_live`: True if
    standard error is a terminal; None: find out."""

    def __init__(self, model_name: str, url: str, front: str, is_live: bool | None = None) -> None:
        self._model_name, self._url, self._front = model_name, url, front
        self._is_live = sys.stderr.isatty() if is_live is None else is_live
        self._progress: Progress | None = None
        self._task_by_name: dict[str, TaskID] = {}
        self._is_starting = True

    def loading(self, name: str, phase: str, fraction: float) -> None:
        """Show how far the start of a child has come (`fraction` of `phase`, 0 to 1). Ignored once the server has served:
        restarts are for the log."""
        if not (self._is_starting and self._is_live):
            return
        if self._progress is None:
            self._progress = _new_progress()
            self._progress.start()
        if name not in self._task_by_name:
            self._task_by_name[name] = self._progress.add_task(name, total=1.0, phase=phase)
        self._progress.update(self._task_by_name[name], completed=fraction, phase=phase)

    def ready(self, name: str, took_s: float) -> None:
        """Show that a child can serve."""
        self.loading(name, f"ready in {took_s:.1f} s", 1.0)

    def serving(self, after_s: float) -> None:
        """All children are ready for the first time: print how to use the server."""
        self.close()
        self.say(serving_text(self._model_name, self._url, self._front, after_s))

    def failed(self, reason: str) -> None:
        """Print why the server gives up. `reason` is one line."""
        self.close()
        self.say(f"supervisor: {reason}")

    def say(self, text: str) -> None:
        """Print `text`. Never raises: a full disk or a closed pipe must not end the server."""
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bars."""
        self._is_starting = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def serving_text(model_name: str, url: str, front: str, after_s: float) -> str:
    """Where the server listens, with commands to copy that stream an answer."""
    flag = _server_flag(url, front)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    options = {"max_tokens": 64, "temperature": 0.2}  # at the API's default of 1.0 a small model soon writes nonsense
    body = {"model": model_name, "messages": question, **options, "stream": True}
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
            f"  supervisor status{flag}    show its processes",
            f"  supervisor stop{flag}      finish the requests in progress, then end (or Ctrl-C here)",
            "",
        ]
    )


def _server_flag(url: str, front: str) -> str:
    """The flag by which `supervisor status` and its like find this server; empty for the default port."""
    port = urlsplit(url).port or 0
    if front != front_endpoint(run_dir_of(port), 0):
        return f" --run-dir {Path(front.removeprefix('ipc://')).parent}"
    return "" if port == DEFAULT_PORT else f" --port {port}"


def _new_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(30), TextColumn("{task.fields[phase]}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
