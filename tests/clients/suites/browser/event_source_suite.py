"""EventSource in a headless Chromium: a page of another origin posts a request and reads it by GET while its gateway dies.

BROWSER: the path of Chromium. CLIENT_PAGE: the address of a page whose origin is allowed; CLIENT_FOREIGN: that of one whose
origin is not. CLIENT_TEXT: the right answer. CLIENT_BODY: the body that asks for it. CLIENT_HELD: 1 if the connections of a
dead gateway are held for the next one, else 0.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

URL, PAGE, FOREIGN = os.environ["CLIENT_URL"], os.environ["CLIENT_PAGE"], os.environ["CLIENT_FOREIGN"]
TEXT, BODY, HELD = os.environ["CLIENT_TEXT"], os.environ["CLIENT_BODY"], os.environ["CLIENT_HELD"] == "1"
WAIT_MS = 120_000.0

POST = """async ([url, body, key]) => {
    const headers = {"Content-Type": "application/json", "Idempotency-Key": key};
    const answer = await fetch(url + "/v1/completions", {method: "POST", headers, body});
    const reader = answer.body.getReader();
    await reader.read();
    await reader.cancel();
    return answer.status;
}"""
READ = """([url, key]) => {
    window.seen = {data: [], opened: 0, ended: false};
    const source = new EventSource(url + "/v1/streams/" + encodeURIComponent(key));
    source.onopen = () => { seen.opened += 1; };
    source.onmessage = (event) => { seen.data.push(event.data); };
    source.onerror = () => { seen.ended = source.readyState === EventSource.CLOSED; };
}"""


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=os.environ["BROWSER"], args=options)
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()


def kill_gateway() -> None:
    """kill -9 of the only gateway."""
    with urllib.request.urlopen(URL + "/v1/live", timeout=60) as answer:
        (pid,) = [one["pid"] for one in json.load(answer)["actors"] if one["name"].startswith("gateway/")]
    os.kill(pid, signal.SIGKILL)


def seen_at_end(page: Page) -> dict[str, Any]:
    """What the page has seen when its EventSource has ended by itself, which it does at status 204."""
    page.wait_for_function("seen.ended")
    return page.evaluate("seen")


def test_an_event_source_notices_nothing_but_a_pause(page: Page) -> None:
    page.goto(PAGE)
    assert page.evaluate(POST, [URL, BODY, "read in a browser"]) == 200
    page.evaluate(READ, [URL, "read in a browser"])
    page.wait_for_function("seen.data.length >= 20")
    kill_gateway()
    n_before = page.evaluate("seen.data.length")
    seen = seen_at_end(page)
    *events, last = seen["data"]
    assert last == "[DONE]"
    assert "".join(choice["text"] for event in events for choice in json.loads(event)["choices"]) == TEXT
    assert n_before < len(events)  # the gateway died in the middle
    assert seen["opened"] == (1 if HELD else 2)


def test_a_page_of_a_foreign_origin_reads_nothing(page: Page) -> None:
    page.goto(FOREIGN)
    page.evaluate(READ, [URL, "read in a browser"])
    assert seen_at_end(page) == {"data": [], "opened": 0, "ended": True}
