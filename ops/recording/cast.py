"""A terminal with two panes, written as an asciicast (version 2): a stream above, commands below."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path

WIDTH, HEIGHT = 84, 22
_STREAM_ROW, _STREAM_ROWS = 3, 11
_COMMAND_ROW = _STREAM_ROW + _STREAM_ROWS + 2
_CLEAR, _GREY, _RED, _GREEN, _BOLD, _PLAIN = "\x1b[2J", "\x1b[90m", "\x1b[91m", "\x1b[92m", "\x1b[1m", "\x1b[0m"


class Cast:
    """Collects what a terminal shows and when. Times are seconds since the first picture."""

    def __init__(self, prompt_line: str) -> None:
        """The upper pane begins with `prompt_line`."""
        self._began_s = time.monotonic()
        self._events: list[tuple[float, str]] = []
        self._text = ""
        self._rows_below = 0
        self._write(f"{_CLEAR}{_at(1)}{_BOLD}$ {prompt_line}{_PLAIN}{_at(_COMMAND_ROW - 1)}{_GREY}{'─' * WIDTH}{_PLAIN}")

    def stream(self, piece: str) -> None:
        """The next piece of the streamed text, in the upper pane."""
        self._text += piece
        lines = [line for part in self._text.split("\n") for line in textwrap.wrap(part, WIDTH - 2) or [""]][-_STREAM_ROWS:]
        rows = "".join(f"{_at(_STREAM_ROW + row)}\x1b[2K{line}" for row, line in enumerate(lines))
        self._write(rows)

    def command(self, line: str, comment: str) -> None:
        """A command that was just run, in the lower pane."""
        self._write(f"{_at(_COMMAND_ROW + self._rows_below)}$ {_RED}{line}{_PLAIN}   # {comment}")
        self._rows_below += 1

    def conclusion(self, line: str) -> None:
        """The last line of the lower pane."""
        self._write(f"{_at(_COMMAND_ROW + self._rows_below)}{_GREEN}{line}{_PLAIN}")

    def save(self, path: Path, hold_s: float = 4.0) -> None:
        """Write the file; the last picture stays for `hold_s` seconds."""
        header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "kill -9 in the middle of a stream"}
        end_s = self._events[-1][0] + hold_s
        lines = [json.dumps(header), *(json.dumps([round(at_s, 3), "o", data]) for at_s, data in self._events)]
        path.write_text("\n".join([*lines, json.dumps([round(end_s, 3), "o", " "])]) + "\n", encoding="utf-8")

    def _write(self, data: str) -> None:
        self._events.append((time.monotonic() - self._began_s, data))


def _at(row: int) -> str:
    """Move the cursor to the beginning of a row, counted from 1."""
    return f"\x1b[{row};1H"
