"""Looks at the live page and keeps pictures of it. `ops/recording/page.py` runs it, with the Python that drives browsers.

Arguments: the server's address, the path of Chromium, the folder of the pictures.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

_WIDE, _PHONE = {"width": 1360, "height": 1270}, {"width": 390, "height": 1270}
_COLOURS = 128
_VICTIMS = ("worker/0.0", "gateway/0", "gateway/1")
_QUESTION = "What is a tardigrade, and how does it survive?"
_WAIT_MS = 60_000


def main(url: str, browser: str, out: Path) -> None:
    """Draw the pictures of one server."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        pages = {scheme: chromium.new_page(viewport=_WIDE, color_scheme=scheme) for scheme in ("light", "dark")}
        pages["phone"] = chromium.new_page(viewport=_PHONE)
        for page in pages.values():
            page.goto(url + "/")
            page.wait_for_selector("#tree details", timeout=_WAIT_MS)
        pages["light"].wait_for_timeout(30_000)  # for lines to look at
        for name in ("light", "dark"):
            _chat(pages[name])
        _kill(url, pages["light"])
        for name, page in pages.items():
            if name != "phone":
                page.locator("details.actor", has_text=_VICTIMS[0]).first.locator("summary").click()
            page.evaluate("window.scrollTo(0, 0)")
            page.wait_for_timeout(1_000)
            _keep(page.screenshot(), out / f"page-{name}.png")
        chromium.close()


def _keep(png: bytes, path: Path) -> None:
    """Keep a picture with few colours, which takes a third of the bytes."""
    from PIL import Image  # pyright: ignore[reportMissingImports]

    Image.open(io.BytesIO(png)).convert("RGB").quantize(_COLOURS).save(path, optimize=True)


def _chat(page: Any) -> None:
    page.wait_for_selector("#chat-model option", state="attached", timeout=_WAIT_MS)
    page.fill("#chat-text", _QUESTION)
    page.press("#chat-text", "Enter")
    page.wait_for_selector(".message .facts:not(:empty)", timeout=_WAIT_MS)


def _kill(url: str, page: Any) -> None:
    """kill -9 of some actors, one after the other, while answers run."""
    for name in _VICTIMS:
        with urllib.request.urlopen(url + "/v1/live", timeout=60) as answer:
            actors = json.load(answer)["actors"]
        os.kill(next(one["pid"] for one in actors if one["name"] == name), signal.SIGKILL)
        page.wait_for_timeout(3_000)
    page.wait_for_timeout(9_000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
