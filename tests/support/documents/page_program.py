"""The program `supervisor` of a page's commands: `python -m tests.support.documents.page_program PORT WORDS...`.

It adds the port of the test's server to commands that look for one, puts its address in the place of those that pages have, and
makes what takes minutes short.
"""

from __future__ import annotations

import re
import sys

import click

from supervisor.__main__ import main

_AND_SO_ON = "..."
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
# the last of two flags counts
_SHORTER = {
    "drill": ["--rounds", "1", "--streams", "4", "--max-tokens", "150"],
    "bench": ["--duration", "2"],
    "run": ["--max-tokens", "8"],
    "chat": ["-o", "max_tokens=8"],
}


def words_here(words: list[str], port: int) -> list[str]:
    """The words of a command as they have to be for a server on this port."""
    here = [_ADDRESS.sub(f"http://127.0.0.1:{port}", word) for word in words if word != _AND_SO_ON]
    command: click.Command = main
    for word in here:
        if not isinstance(command, click.Group):
            break
        command = command.commands.get(word, command)
    takes_port = any("--port" in parameter.opts for parameter in command.params)
    is_named = any(map(_ADDRESS.match, words)) or "--port" in here or "--config" in here
    return [*here, *_SHORTER.get(here[0], []), *(["--port", str(port)] if takes_port and not is_named else [])]


if __name__ == "__main__":
    main(words_here(sys.argv[2:], int(sys.argv[1])), prog_name="supervisor")
