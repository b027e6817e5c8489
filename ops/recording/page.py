"""`python -m ops.recording.page`: pictures of the live page of a real server, whose processes are killed meanwhile.

Writes docs/images/page-light.png, page-dark.png and page-phone.png. It needs Chromium, and what `make browser-env` installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from ops.bench.own_server import own_server
from ops.recording.load import load_on

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_ENVIRONMENT = Path(os.environ.get("CLIENT_ENVIRONMENTS", "") or Path(sys.prefix) / "clients") / "browser"
_CLIENTS = 3


@click.command()
@click.option("--model", default="", help="Model to serve; default: the small packaged model.")
@click.option("--out", type=click.Path(path_type=Path), default=IMAGES, show_default=True, help="Folder to write to.")
def main(model: str, out: Path) -> None:
    """Draw the pictures."""
    python, browser = _ENVIRONMENT / "bin" / "python", shutil.which("chromium")
    if browser is None or not python.exists():
        raise SystemExit("needs Chromium and its driver: make browser-env")
    out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--model", model] if model else []), "--gateways", "2", "--log-level", "error"]
    with own_server(flags) as server, load_on(server.url, _CLIENTS):
        program = Path(__file__).with_name("page_in_browser.py")
        subprocess.run([python, program, server.url, browser, out], check=True)


if __name__ == "__main__":
    main()
