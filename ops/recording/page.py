"""`python -m ops.recording.page`: pictures of the live page of a real server, whose processes are killed meanwhile.

Writes docs/images/page-light.png, page-dark.png and page-phone.png. It needs Chromium, and what `make browser-env` installs.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import click
import httpx

from ops.bench.own_server import own_server

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_ENVIRONMENT = Path(os.environ.get("CLIENT_ENVIRONMENTS", "") or Path(sys.prefix) / "clients") / "browser"
_CLIENTS = 3
_WORDS = ("a", "water", "bear", "in", "moss", "dries", "to", "a", "tun", "and", "waits", "for", "years", "until", "rain")


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
    with own_server(flags) as server:
        is_over = threading.Event()
        clients = [threading.Thread(target=_ask, args=(server.url, is_over, seed)) for seed in range(_CLIENTS)]
        for client in clients:
            client.start()
        try:
            program = Path(__file__).with_name("page_in_browser.py")
            subprocess.run([python, program, server.url, browser, out], check=True)
        finally:
            is_over.set()
            for client in clients:
                client.join()


def _ask(url: str, is_over: threading.Event, seed: int) -> None:
    """One client, which asks again and again."""
    dice = random.Random(seed)
    with httpx.Client(base_url=url, timeout=120.0) as http:
        while not is_over.is_set():
            prompt = "Continue this story about a tardigrade: " + " ".join(dice.choices(_WORDS, k=dice.randrange(5, 80)))
            with contextlib.suppress(httpx.HTTPError):  # between two requests a connection ends with its gateway
                http.post("/v1/completions", json={"prompt": prompt, "max_tokens": dice.randrange(20, 90)})
            is_over.wait(dice.random())


if __name__ == "__main__":
    main()
