"""Where the lines of a chat come from: prompt-toolkit on a terminal, Python's own input line without that, or a pipe.

A text of several lines stands between two lines of three quotes, or is written with Alt-Enter where there is prompt-toolkit.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PROMPT, MORE = ">>> ", "... "
_QUOTES = '"""'

ReadLine = Callable[[str], str]  # the prompt -> a line; raises EOFError at the end, KeyboardInterrupt at Ctrl-C


def read_text(read_line: ReadLine) -> str:
    """The next text: one line, or those between two of three quotes, which may follow a command. Raises: EOFError,
    KeyboardInterrupt."""
    line = read_line(PROMPT).strip()
    command, quotes, rest = line.partition(_QUOTES)
    if not quotes or (command and not command.startswith("/")):
        return line
    lines = [rest]
    while not lines[-1].rstrip().endswith(_QUOTES):
        lines.append(read_line(MORE))
    lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
    return command + "\n".join(lines).strip("\n")


def pipe_lines(_: str) -> str:
    """The next line of standard input, which is no terminal: no prompt is shown. Raises: EOFError."""
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.removesuffix("\n")


def terminal_lines(history: Path | None, words: Sequence[str]) -> ReadLine:
    """Lines from the terminal. `history`: a file that keeps them, for this user alone; None: none. `words`: to complete."""
    if history is not None:
        history = _private(history)
    if importlib.util.find_spec("prompt_toolkit") is None:
        return _own_lines(history)
    return _toolkit_lines(history, words)


def _private(path: Path) -> Path | None:
    """The file, which nobody else may read; None if it cannot be made."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return None
    return path


def _own_lines(history: Path | None) -> ReadLine:
    """Python's input line, with readline where there is one."""
    try:
        import readline
    except ImportError:
        readline = None
    if readline is not None and history is not None:
        readline.read_history_file(history)

    def read(prompt: str) -> str:
        try:
            line = input(prompt)
        except (EOFError, KeyboardInterrupt):
            print()  # what follows begins on a line of its own
            raise
        if readline is not None and history is not None:
            readline.append_history_file(1, history)
        return line

    return read


def _toolkit_lines(history: Path | None, words: Sequence[str]) -> ReadLine:
    # an extra, which may not be installed
    from prompt_toolkit import PromptSession  # pyright: ignore[reportMissingImports]
    from prompt_toolkit.completion import WordCompleter  # pyright: ignore[reportMissingImports]
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # pyright: ignore[reportMissingImports]
    from prompt_toolkit.key_binding import KeyBindings  # pyright: ignore[reportMissingImports]
    from prompt_toolkit.styles import Style  # pyright: ignore[reportMissingImports]

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)) if history else InMemoryHistory(),
        completer=WordCompleter(list(words), sentence=True),
        complete_while_typing=False,
        key_bindings=keys,
        multiline=True,
        prompt_continuation=MORE,
        style=Style.from_dict({"prompt": "bold"}),
    )

    def read(prompt: str) -> str:
        return session.prompt([("class:prompt", prompt)])

    return read
