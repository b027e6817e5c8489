"""The site of the documents in a headless Chromium: its search, widths and colours; it asks no other host for anything.

BROWSER: the path of Chromium. SITE_URLS: where the site is, over HTTP and as files. SITE_PAGES: the names of all pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

URLS, PAGES = os.environ["SITE_URLS"].split(), os.environ["SITE_PAGES"].split()
WAIT_MS = 60_000.0
PHONE = {"width": 360, "height": 760}
_LEFT = "net::ERR_ABORTED"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--allow-file-access-from-files"]
        browser = playwright.chromium.launch(executable_path=os.environ["BROWSER"], args=options)
        yield browser
        browser.close()


class Looked:
    """A tab, what it has asked for, and what went wrong in it."""

    def __init__(self, browser: Browser, url: str, **options: object) -> None:
        self.url, self.asked, self.wrong = url, list[str](), list[str]()
        self.page: Page = browser.new_page(**options)
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("request", lambda request: self.asked.append(request.url))
        # A page that is left for the next one may still ask for its icon. Chromium ends that with this error, and no other.
        self.page.on("requestfailed", lambda request: None if request.failure == _LEFT else self.wrong.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)

    def open(self, name: str) -> None:
        """Open a page of the site."""
        self.page.goto(f"{self.url}/{name}.html")

    def check(self) -> None:
        """Raises: AssertionError if something went wrong, or another host was asked."""
        others = [url for url in self.asked if not url.startswith((self.url, "data:", "blob:", "about:"))]
        assert (others, self.wrong) == ([], [])
        self.page.close()


def test_every_page_asks_no_other_host_and_fits_a_phone(browser: Browser) -> None:
    looked = Looked(browser, URLS[0], viewport=PHONE)
    for name in PAGES:
        looked.open(name)
        assert looked.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert looked.page.locator("h1").first.inner_text().strip(), name
    looked.check()


@pytest.mark.parametrize("url", URLS)
def test_the_search_finds_how_a_tenant_is_limited(browser: Browser, url: str) -> None:
    looked = Looked(browser, url)
    looked.open("index")
    looked.page.click("input.md-search__input")
    looked.page.keyboard.type("limits of a tenant")
    found = looked.page.locator(".md-search-result__item a[href*='operations.html']").first
    found.wait_for(state="visible")
    found.click()
    looked.page.wait_for_url("**/operations.html*")
    assert "tenant" in looked.page.locator("article").inner_text()
    looked.check()


def test_dark_and_light_follow_the_system_until_one_chooses(browser: Browser) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        looked = Looked(browser, URLS[0], color_scheme=scheme)
        looked.open("index")
        grounds[scheme] = looked.page.evaluate("getComputedStyle(document.body).backgroundColor")
        looked.page.locator("label[for^='__palette']:not([hidden])").first.click()
        chosen = looked.page.evaluate("document.body.getAttribute('data-md-color-scheme')")
        looked.open("api")
        assert looked.page.evaluate("document.body.getAttribute('data-md-color-scheme')") == chosen
        looked.check()
    assert grounds["light"] != grounds["dark"]
