"""`python -m ops.recording`: start a server, stream from it, kill its processes, and keep what the terminal showed.

Writes docs/media/kill.cast (play it with `asciinema play`) and, where `npx` is installed, docs/media/kill.svg, which the
package svg-term-cli draws from it. Everything is real: the processes, the kills and the times between the tokens.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import click

from messages.client import Client
from ops.bench.own_server import OwnServer, own_server
from ops.recording.cast import Cast
from supervisor.operator.calls import ask_status

MEDIA = Path(__file__).parents[2] / "docs" / "media"
PROMPT = "Tell me about the tardigrade, the hardiest animal on earth, and how it survives drought, cold and empty space."
N_TOKENS = 170
KILLS = ((30, "worker/0.0"), (75, "scheduler/0"), (120, "gateway/0"))  # after so many tokens, this one
_TURN = [{"role": "user", "content": PROMPT}]


@click.command()
@click.option("--model", default="", help="Model to serve; default: the small packaged model.")
@click.option("--out", type=click.Path(path_type=Path), default=MEDIA, show_default=True, help="Folder to write to.")
def main(model: str, out: Path) -> None:
    """Record the stream that survives."""
    out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--model", model] if model else []), "--log-level", "error"]
    with own_server(flags) as server, Client(port=server.port) as client:
        calm = client.chat(_TURN, max_tokens=N_TOKENS, temperature=0.0).tokens
        cast = Cast("python chat.py 'Tell me about the tardigrade'")
        tokens = _stream_with_kills(server, client, cast)
    same = "the same tokens as without kills" if tokens == calm else "NOT the tokens of the calm run"
    cast.verdict(f"{len(KILLS)} processes killed, {len(tokens)} tokens, {same}")
    cast.save(out / "kill.cast")
    if tokens != calm:
        raise SystemExit("the stream differs from the calm run; kill.cast shows where")
    _draw(out)


def _stream_with_kills(server: OwnServer, client: Client, cast: Cast) -> list[int]:
    tokens: list[int] = []
    left = list(KILLS)
    for piece in client.stream(messages=_TURN, max_tokens=N_TOKENS, temperature=0.0):
        tokens += piece.ids
        cast.stream(piece.text)
        if left and len(tokens) >= left[0][0]:
            _, name = left.pop(0)
            pid = next(child.pid for child in ask_status(server.run_dir).children if child.name == name)
            os.kill(pid, signal.SIGKILL)
            cast.command(f"kill -9 {pid}", name)
    return tokens


def _draw(out: Path) -> None:
    """kill.svg from kill.cast."""
    if shutil.which("npx") is None:
        click.echo("npx is not installed: kill.svg was not drawn", err=True)
        return
    command = ["npx", "--yes", "svg-term-cli", "--in", str(out / "kill.cast"), "--out", str(out / "kill.svg"), "--window"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
