"""The page at / in a headless Chromium: what it shows, its chat, its keyboard, and how it goes on when processes die.

BROWSER: the path of Chromium. CLIENT_KEYS: a user's and an admin's API key, with a blank between; "": the server asks for none.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.clients.page_looks import faint_texts, notice_beside_the_key, out_of_reach, word_of_end

LIVE = "/v1/live?stream=true"
LONGEST_S = 2.0  # from the silence of a gateway to the last of these tries
N_TRIES = 4  # over connections of their own, as a browser may have kept some that lead to dead gateways
URL, OUT = os.environ["CLIENT_URL"], Path(os.environ["CLIENT_OUT"])
KEYS = os.environ.get("CLIENT_KEYS", "").split()
WAIT_MS = 60_000.0
PHONE = {"width": 360, "height": 760}

open_server = pytest.mark.skipif(bool(KEYS), reason="this server asks for keys")
with_keys = pytest.mark.skipif(not KEYS, reason="this server asks for no keys")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=os.environ["BROWSER"], args=options)
        yield browser
        browser.close()


class Looked:
    """Pages that a test has opened, and what went wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.wrong: list[str] = []
        self.may_lose = False  # connections, because processes are killed

    def page(self, **options: Any) -> Page:
        """The page, in a tab of its own."""
        page = self._browser.new_page(**options)
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda sent: self._asked(sent.url))
        page.goto(URL + "/")
        return page

    def _said(self, kind: str, text: str) -> None:
        of_connections = "Failed to load resource" in text and (self.may_lose or KEYS)
        if kind in ("error", "warning") and not of_connections:
            self.wrong.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((URL + "/", "data:")):
            self.wrong.append(f"another host: {url}")


@pytest.fixture
def looked(browser: Browser) -> Iterator[Looked]:
    one = Looked(browser)
    yield one
    assert one.wrong == []


def expect_live(page: Page) -> None:
    expect(page.locator("#tree details.actor").nth(3)).to_be_visible(timeout=WAIT_MS)


def live(key: str = "") -> dict[str, Any]:
    """The newest snapshot, as a program asks for it."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(URL + "/v1/live", headers=headers), timeout=60) as answer:
        return json.load(answer)


def expect_snapshot(page: Page, after_s: float) -> None:
    """Until the page is connected and shows the server as it was after this Unix time. The page may evaluate no text, so the
    condition is asked from here."""
    until_s = time.monotonic() + WAIT_MS / 1e3
    while page.evaluate("document.body.dataset.link") != "live" or float(page.evaluate("document.body.dataset.at")) <= after_s:
        assert time.monotonic() < until_s, "no new snapshot"
        page.wait_for_timeout(10)


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """These processes do nothing until the end of the block: their connections stay, and say nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # killed, because it was silent for too long
                os.kill(pid, signal.SIGCONT)


def until_served(after_s: float) -> float:
    """Wait until the server answers as it was after this Unix time. Returns when it did."""
    until_s = time.monotonic() + WAIT_MS / 1e3
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            if live()["time_s"] > after_s:
                return time.time()
    raise AssertionError("the server does not answer")


def ask(page: Page, text: str) -> None:
    page.fill("#chat-text", text)
    page.press("#chat-text", "Enter")


@open_server
def test_it_shows_the_server(looked: Looked) -> None:
    page = looked.page(viewport={"width": 1280, "height": 900})
    expect_live(page)
    expect(page.locator("#state-text")).to_have_text("serving")
    assert {one["name"] for one in live()["actors"]} | {"supervisor/0"} == set(page.locator(".actor .name").all_inner_texts())
    expect(page.locator(".tile")).to_have_count(6)
    expect(page.locator(".plot canvas")).to_have_count(4)
    expect(page.locator(".plot-box").first).to_have_attribute("aria-label", re.compile("Tokens per second .* now tokens/s"))
    assert [word_of_end(page, how) for how in ("exit status 0", "killed by SIGKILL")] == ["ended", "died"]
    page.screenshot(path=f"{OUT}-wide.png")


@open_server
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_schemes(looked: Looked, scheme: str) -> None:
    page = looked.page(viewport=PHONE, color_scheme=scheme)
    expect_live(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", background))) < 64) == (scheme == "dark")
    assert faint_texts(page) == []
    page.screenshot(path=f"{OUT}-phone-{scheme}.png", full_page=True)


@open_server
def test_every_control_has_a_name_and_the_keyboard_reaches_all(looked: Looked) -> None:
    page = looked.page()
    expect_live(page)
    named = "[...document.querySelectorAll('button,select,textarea,a,summary,[role]')].filter(e => e.checkVisibility())"
    nameless = f"{named}.filter(e => !(e.ariaLabel || e.innerText || e.labels?.length || e.title)).map(e => e.outerHTML)"
    assert [one for one in page.evaluate(nameless) if 'role="status"' not in one] == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    expect(page.locator("#chat-text")).to_be_focused()
    actor = page.locator("details.actor", has_text="worker/0.0")
    actor.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(actor.locator(".advice code")).to_have_text(re.compile(r"kill -9 \d+"))
    fresh = looked.page()  # whose focus is at its top
    expect_live(fresh)
    assert out_of_reach(fresh) == []


@open_server
def test_an_answer_is_streamed_and_can_be_stopped(looked: Looked) -> None:
    page = looked.page()
    expect_live(page)
    expect(page.locator("#chat-model option").first).to_be_attached()
    ask(page, "Count.")
    expect(page.locator(".message.assistant .words")).to_have_text(re.compile(r"\d+ \d+ \d+"))
    expect(page.locator("#requests-table tbody tr")).to_have_count(1, timeout=WAIT_MS)
    assert page.locator("#requests-table td.id").inner_text().endswith("…"), "who knows an id can read the stream"
    page.keyboard.press("Escape")
    expect(page.locator(".message .facts").last).to_contain_text("stopped")
    expect(page.locator("#requests-count")).to_have_text("none open", timeout=WAIT_MS)
    expect(page.locator("#chat-send")).to_be_enabled()


@open_server
def test_it_goes_on_through_the_death_of_every_process(looked: Looked) -> None:
    looked.may_lose = True
    page = looked.page()
    expect_live(page)
    for name in [one["name"] for one in live()["actors"]]:
        life, pid = next((one["life"], one["pid"]) for one in live()["actors"] if one["name"] == name)
        began_s = time.time()
        os.kill(pid, signal.SIGKILL)
        with ThreadPoolExecutor(1) as witness:
            served = witness.submit(until_served, began_s)
            expect_snapshot(page, began_s)
            shown_s = time.time() - began_s
            print(f"{name}: served {served.result() - began_s:.2f} s after kill -9, shown {shown_s:.2f} s after it")
        expect(page.locator("#events")).to_contain_text(f"{name} is ready: life {life + 1}", timeout=WAIT_MS)
    supervisor, began_s = live()["supervisor"]["pid"], time.time()
    os.kill(supervisor, signal.SIGKILL)
    expect(page.locator("#events")).to_contain_text(re.compile("supervisor answers again|new supervisor"), timeout=WAIT_MS)
    print(f"supervisor: shown {time.time() - began_s:.2f} s after kill -9")
    expect(page.locator("#state-text")).to_have_text("serving", timeout=WAIT_MS)


@open_server
def test_it_asks_again_within_two_seconds_of_its_own_clock(looked: Looked) -> None:
    """No gateway closes a connection and none answers, which is the longest way to notice a loss. The clock is the page's: a
    machine with much to do fails nothing."""
    looked.may_lose = True
    page = looked.page()
    expect_live(page)
    page.clock.install()
    page.reload()  # its timers are those of this clock
    expect_live(page)
    gateways = [one["pid"] for one in live()["actors"] if one["name"].startswith("gateway/")]
    page.clock.pause_at(time.time() + 60)
    began_s = time.time()
    while page.evaluate("document.body.dataset.link") != "live" or float(page.evaluate("document.body.dataset.at")) <= began_s:
        page.clock.run_for(50)  # the leap of its clock was a silence
    tries: list[str] = []
    page.on("request", lambda sent: tries.append(sent.url) if sent.url.endswith(LIVE) else None)
    with stopped(gateways):
        for _ in range(round(LONGEST_S / 0.05)):
            page.clock.run_for(50)
        until_s = time.monotonic() + WAIT_MS / 1e3
        while len(tries) < N_TRIES:  # this clock stands still
            assert time.monotonic() < until_s, tries
            page.wait_for_timeout(10)
    page.clock.resume()
    expect_snapshot(page, time.time())


@open_server
def test_an_answer_goes_on_when_its_gateway_dies(looked: Looked) -> None:
    looked.may_lose = True
    page = looked.page()
    expect_live(page)
    expect(page.locator("#chat-model option").first).to_be_attached()
    lengths = []
    for kills in (False, True):
        page.click("#chat-new")
        ask(page, "Go on until your length ends.")
        words = page.locator(".message.assistant .words")
        expect(words).to_have_text(re.compile(r"(\d+ ){20}"), timeout=WAIT_MS)
        for one in live()["actors"] if kills else []:
            if one["name"].startswith("gateway/"):
                os.kill(one["pid"], signal.SIGKILL)
        expect(page.locator(".message .facts").last).to_contain_text("as long as it may be", timeout=WAIT_MS)
        lengths.append(len(words.inner_text().split()))
    assert lengths[0] == lengths[1], "no token is lost, and none is there twice"


def expect_gpu_and_caches(page: Page) -> None:
    """The tile and the plots of the GPU that test_page.py has made, and the tiles of the caches that it has turned on."""
    for name, more in (("Pages brought back", r"host \d+"), ("Answers reused", r"\d+ of \d+ requests, shared \d+")):
        expect(page.locator(".tile", has_text=name).locator(".more")).to_have_text(re.compile(more), timeout=WAIT_MS)
    tile = page.locator(".tile", has_text="GPU busy")
    expect(tile.locator(".value")).to_have_text("50 %", timeout=WAIT_MS)
    expect(tile.locator(".more")).to_have_text("1.5 GB in use")
    plots = page.locator(".plot", has_text="GPU")
    expect(plots.locator("canvas")).to_have_count(2)
    for plot, spoken in enumerate((r"GPU busy over .*; now busy 50 %", r"GPU memory over .*; now used 1\.5 GB")):
        expect(plots.nth(plot).locator(".plot-box")).to_have_attribute("aria-label", re.compile(spoken))


@with_keys
def test_a_key_is_asked_for_and_shows_only_what_is_its_own(looked: Looked) -> None:
    user, admin = KEYS
    page, others = looked.page(), looked.page()
    expect(page.locator("#key-dialog")).to_be_visible()
    assert page.locator("#tree details").count() == 0
    assert notice_beside_the_key(page, "sk-wrong") == ""
    for key, who in ((user, page), (admin, others)):
        who.fill("#key-text", key)
        who.press("#key-text", "Enter")
    expect_live(page)
    expect_live(others)
    expect(others.locator("#chat-model option").first).to_be_attached()
    ask(others, "Count.")
    expect(others.locator("#requests-table tbody tr")).to_have_count(1, timeout=WAIT_MS)
    assert "chatcmpl-" in others.locator("#requests-table td.id").inner_text()
    expect_snapshot(page, time.time())
    expect(page.locator("#requests-count")).to_have_text("none open")
    others.click("#chat-stop")
    rows = others.locator("#tenants-table tbody tr")
    expect(rows.filter(has_text="admin").locator("td").nth(2)).to_have_text("1", timeout=WAIT_MS)  # one request
    expect(page.locator("#tenants-table tbody tr").filter(has_text="admin")).to_have_count(0)
    assert (live(admin)["supervisor"]["pid"] > 0, live(user)["supervisor"]["pid"]) == (True, 0)
    expect_gpu_and_caches(others)
    others.click("#forget-key")
    expect(others.locator("#key-dialog")).to_be_visible()
