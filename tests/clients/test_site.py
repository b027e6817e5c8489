"""The site of the documents is built without a warning and looked at in a browser: `make client-env browser-env`."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ops.site.navigation import pages_of, present
from tests.clients.programs import own_variables, program_of
from tests.clients.running_suites import SUITES
from tests.support.documents.code_blocks import REPO

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
_LIMIT_S = 800.0
_ASKED = re.compile(r"""(?:src|href|srcset|action)\s*=\s*["']?((?:https?:)?//[^"'\s>]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("documents")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def build(folder: Path, extra: str = "") -> subprocess.CompletedProcess[str]:
    """Build the site of the documents, or of a copy in which index.md has one more line."""
    mkdocs = program_of("docs", "mkdocs")
    program = [
        sys.executable,
        "-m",
        "ops.site",
        "--mkdocs",
        mkdocs,
        "--out",
        str(folder / "site"),
        "--work",
        str(folder / "work"),
    ]
    if extra:
        program[1:3] = ["-c", _WITH_EXTRA.format(extra=extra)]
    return subprocess.run(program, cwd=REPO, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


_WITH_EXTRA = """
import ops.site.page_texts as pages
whole = pages.page_text
pages.page_text = lambda document, text, known: whole(document, text, known) + {extra!r} * (document == "docs/index.md")
from ops.site.__main__ import main
main()
"""


def names() -> list[str]:
    """The names of all pages without `.html`."""
    sections = present(lambda document: (REPO / document).is_file())
    return [page.name.removesuffix(".md") for page in pages_of(sections)]


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    """Links that a reader may follow lead to other hosts; scripts, styles and pictures do not."""
    for name in names():
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        parts = re.findall(r"<(?!a\b)[a-z]+\b[^>]*>", text)
        assert [part for part in parts if _ASKED.search(part)] == [], name


@pytest.mark.parametrize(
    "extra", ["\n[nowhere](api.md#nowhere)\n", "\n[nowhere](nowhere.md)\n", "\n![nowhere](media/nowhere.svg)\n"]
)
def test_a_link_that_leads_nowhere_fails(extra: str, tmp_path: Path) -> None:
    done = build(tmp_path, extra)
    assert done.returncode == 1
    assert "nowhere" in done.stderr


def test_the_site_in_a_browser(site: Path) -> None:
    python, browser = program_of("browser", "python"), shutil.which("chromium")
    if browser is None:
        pytest.skip("needs Chromium: make browser-env")
    options = ["-c", "/dev/null", "--rootdir", str(SUITES), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-qs"]
    with served(site) as url:
        given = {"SITE_URLS": f"{url} {site.as_uri()}", "SITE_PAGES": " ".join(names()), "BROWSER": browser}
        done = subprocess.run(
            [python, "-m", "pytest", *options, str(SUITES / "browser" / "site_suite.py")],
            env=own_variables() | given, cwd=site.parent, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server for a folder."""
    handler = partial(_Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing of each request."""
