"""`python -m ops.recording.terminal`: pictures of `supervisor chat` and `supervisor top` with a real server.

Writes docs/images/chat.svg and top.svg. Processes of the server are killed while the answer runs, and while `top` watches.
"""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ops.bench.own_server import OwnServer, own_server
from ops.recording.load import load_on
from ops.recording.page import IMAGES
from supervisor.operator.calls import ask_status
from supervisor.top.figures import Trends
from supervisor.top.screen import SortBy, View, drawn

_WIDTH, _TOP_ROWS = 92, 22
_CLIENTS, _TOP_S = 6, 20
_QUESTION = "What is a tardigrade, and how does it survive?"
_ANSWER_TOKENS, _KILL_AFTER = 90, 120  # tokens of the chat's answer; characters of it before its gateway is killed
_DEADLINE_S = 180.0
_CHAT = "import sys; sys.modules['prompt_toolkit'] = None; from tardigrade_serve import supervisor; supervisor()"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\x03|\x04")
_PROMPT = ">>> "
# rich's own form asks other hosts for its font. {lines} and {backgrounds} are clip paths and colours behind the text
_FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


@click.command()
@click.option("--model", default="", help="Model to serve; default: the small packaged model.")
@click.option("--out", type=click.Path(path_type=Path), default=IMAGES, show_default=True, help="Folder to write to.")
def main(model: str, out: Path) -> None:
    """Draw the pictures."""
    out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--model", model] if model else []), "--gateways", "2", "--log-level", "error"]
    with own_server(flags) as server:
        (out / "chat.svg").write_text(svg(chat_text(server), "supervisor chat"), encoding="utf-8")
        (out / "top.svg").write_text(svg(_top_text(server), "supervisor top"), encoding="utf-8")


def svg(text: Text, title: str) -> str:
    """A picture of a terminal with this text. It needs no other file and no other host."""
    console = Console(width=_WIDTH, record=True, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(text)
    drawn_svg = console.export_svg(title=title, code_format=_FORM, unique_id="t")
    return "".join(f"{line.rstrip()}\n" for line in drawn_svg.splitlines() if line.strip())


def chat_text(server: OwnServer) -> Text:
    """What a user sees who asks one thing. The gateways are killed in the middle of the answer."""
    chat = _Chat(
        ["chat", "--port", str(server.port), "--no-history", "-o", f"max_tokens={_ANSWER_TOKENS}", "-o", "temperature=0"]
    )
    try:
        chat.read_until(lambda said: said.count(_PROMPT) == 1)
        chat.type(_QUESTION)
        chat.read_until(lambda said: len(said.rpartition(_QUESTION)[2]) > _KILL_AFTER)
        for name in ("gateway/0", "gateway/1", "worker/0.0"):
            _kill(server, name)
        chat.read_until(lambda said: said.count(_PROMPT) == 2)
        chat.type("/stats")
        chat.read_until(lambda said: said.count(_PROMPT) == 3)
        said = chat.said.rstrip().removesuffix(_PROMPT.strip()).rstrip()
    finally:
        chat.close()
    text = Text.assemble(("$ supervisor chat\n", "bold"), said)
    text.highlight_regex(r"(?m)^>>> .*$", "bold")
    return text


class _Chat:
    """A command of ours in a terminal of its own, with Python's input line: it moves no cursor. `said`: what it has shown."""

    def __init__(self, arguments: list[str]) -> None:
        ours, theirs = pty.openpty()
        self._terminal = ours
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": str(_WIDTH)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHAT, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def type(self, line: str) -> None:
        """A line, as a user types it."""
        os.write(self._terminal, f"{line}\n".encode())

    def read_until(self, is_there: Callable[[str], bool]) -> None:
        """Read what it shows until that is enough. Raises: TimeoutError; OSError if it has ended."""
        end_s = time.monotonic() + _DEADLINE_S
        while not is_there(self.said):
            ready, _, _ = select.select([self._terminal], [], [], max(end_s - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError(f"the chat shows no more than {self.said!r}")
            self.said += _CONTROLS.sub("", os.read(self._terminal, 65536).decode(errors="replace"))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


def _top_text(server: OwnServer) -> Text:
    """What `supervisor top` shows of a busy server after some kills."""
    trends = Trends()
    with load_on(server.url, _CLIENTS):
        for second in range(_TOP_S):
            if second in (8, 12):
                _kill(server, "scheduler/0" if second == 8 else "gateway/1")
            trends.screen(ask_status(server.run_dir), time.monotonic())
            time.sleep(1.0)
        end_s = time.monotonic() + _DEADLINE_S
        while not (figures := trends.screen(ask_status(server.run_dir), time.monotonic())).tokens_rate:
            if time.monotonic() > end_s:
                raise TimeoutError("the server computes no token after the kills")
            time.sleep(1.0)
    return drawn(figures, View(_WIDTH, _TOP_ROWS, SortBy.TREE))


def _kill(server: OwnServer, name: str) -> None:
    os.kill(next(child.pid for child in ask_status(server.run_dir).children if child.name == name), signal.SIGKILL)


if __name__ == "__main__":
    main()
