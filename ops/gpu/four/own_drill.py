"""A drill against a server that is started for it: `python3 -m ops.gpu.four.own_drill --model FOLDER --fault kill:worker`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from ops.bench.machine import describe_machine
from ops.bench.own_server import ServerDidNotStart, own_server
from supervisor.bench.serve_load import write_json


@click.command(context_settings={"show_default": True})
@click.option("--model", required=True, help="A folder with a configuration and a tokenizer; weights are random.")
@click.option("--fault", "faults", multiple=True, required=True, help="As for `supervisor drill`; repeatable.")
@click.option("--rounds", default=4, help="Of each fault.")
@click.option("--streams", default=256)
@click.option("--max-tokens", default=300)
@click.option("--server-arg", "server_args", multiple=True, help="One more argument for `supervisor start`; repeatable.")
@click.option("--out", help="Append the JSON here instead of printing it.")
def command(
    model: str, faults: tuple[str, ...], rounds: int, streams: int, max_tokens: int, server_args: tuple[str, ...],
    out: str | None,
) -> None:  # fmt: skip
    """Start a server, harm it, and end it. The exit status is that of the drill."""
    arguments = ["--model", model, "--load-format", "random", "--max-length", "4096", "--log-level", "warning", *server_args]
    chosen = [word for fault in faults for word in ("--fault", fault)]
    asked = ["--rounds", str(rounds), "--streams", str(streams), "--max-tokens", str(max_tokens)]
    with tempfile.TemporaryDirectory(prefix="tardigrade-drill-") as folder:
        found = Path(folder, "drill.json")
        try:
            with own_server(arguments) as server:
                run_dir = ["--run-dir", str(server.run_dir)]
                drill = [
                    sys.executable,
                    "-m",
                    "supervisor",
                    "drill",
                    server.url,
                    *run_dir,
                    *chosen,
                    *asked,
                    "--json",
                    str(found),
                ]
                status = subprocess.run(drill, check=False, stdout=sys.stderr).returncode
        except ServerDidNotStart as error:
            raise click.ClickException(str(error)) from None
        result = json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}
    described = {"start_s": round(server.start_s, 2), "machine": describe_machine()}
    write_json({"bench": "own-drill", "server": list(server_args), **described, "drill": result}, out)
    sys.exit(status)


if __name__ == "__main__":
    command()
