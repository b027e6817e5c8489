"""`python -m ops.recording`: start a server, stream from it, kill its processes, and keep what the terminal showed.

Writes docs/media/kill.cast (play it with `asciinema play`) and, where `npx` is installed, docs/media/kill.svg, which the
package svg-term-cli draws from it. Everything is real: the processes, the kills and the times between the tokens.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click

from ops.bench.own_server import OwnServer, own_server
from ops.recording.cast import Cast
from supervisor.operator.calls import ask_status

MEDIA = Path(__file__).parents[2] / "docs" / "media"
PROMPT = "Tell me about the tardigrade, the hardiest animal on earth, and how it survives drought, cold and empty space."
N_TOKENS = 170
KILLS = ((35, "worker/0.0"), (62, "scheduler/0"), (89, "gateway/0"), (116, "supervisor"), (143, "parent"))  # after n tokens
_BODY = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
_PATH = "/v1/chat/completions"


@click.command()
@click.option("--model", default="", help="Model to serve; default: the small packaged model.")
@click.option("--out", type=click.Path(path_type=Path), default=MEDIA, show_default=True, help="Folder to write to.")
def main(model: str, out: Path) -> None:
    """Record the stream that survives. It needs curl."""
    out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--model", model] if model else []), "--log-level", "error"]
    with own_server(flags) as server:
        calm = list(_curl(server))
        cast = Cast(f"curl -N localhost:{server.port}{_PATH} -d @question.json | ./text")
        pieces = _stream_with_kills(server, cast)
    same = "the same text as without kills" if pieces == calm else "NOT the text of the calm run"
    cast.conclusion(f"{len(KILLS)} processes killed, one connection, {len(pieces)} tokens, {same}")
    cast.save(out / "kill.cast")
    if pieces != calm:
        raise SystemExit("the stream differs from the calm run; kill.cast shows where")
    _draw(out)


def _curl(server: OwnServer) -> Iterator[str]:
    """The text of each token of one answer, as curl gets it. Nothing connects again if the connection is cut."""
    command = ["curl", "-sSN", f"{server.url}{_PATH}", "-H", "Content-Type: application/json", "-d", json.dumps(_BODY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                delta = choice["delta"]
                if "role" not in delta and delta.get("content") is not None and choice["finish_reason"] is None:
                    yield delta["content"]


def _stream_with_kills(server: OwnServer, cast: Cast) -> list[str]:
    pieces: list[str] = []
    left = list(KILLS)
    for piece in _curl(server):
        pieces.append(piece)
        cast.stream(piece)
        if left and len(pieces) >= left[0][0]:
            _, name = left.pop(0)
            pid = _pid_of(server, name)
            os.kill(pid, signal.SIGKILL)
            cast.command(f"kill -9 {pid}", name if name != "parent" else "parent of the supervisor")
    return pieces


def _pid_of(server: OwnServer, name: str) -> int:
    report = ask_status(server.run_dir)
    above = {"supervisor": report.supervisor_pid, "parent": report.parent_pid}
    return above.get(name) or next(child.pid for child in report.children if child.name == name)


def _draw(out: Path) -> None:
    """kill.svg from kill.cast."""
    if shutil.which("npx") is None:
        click.echo("npx is not installed: kill.svg was not drawn", err=True)
        return
    command = ["npx", "--yes", "svg-term-cli", "--in", str(out / "kill.cast"), "--out", str(out / "kill.svg"), "--window"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
