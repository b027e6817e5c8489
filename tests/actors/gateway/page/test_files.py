"""The files of the page: each is served, points at files that are there, and at no other host."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from actors.gateway.page import files
from tests.support.gateway.gateway_rig import rig

FOLDER = Path(files.__file__).parent / "assets"
NAMES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
OURS = [name for name in NAMES if not name.startswith("vendor/")]
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("name", OURS)
def test_a_file_points_at_files_that_exist_and_at_no_other_host(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert re.findall(r"https?://|//[\w-]+\.\w", text.replace('xmlns="http://www.w3.org/2000/svg"', "")) == []
    of_page = [FOLDER / path for path in re.findall(r'(?:src|href)="page/([^"]+)"', text)]
    imported = [(FOLDER / name).parent / path for path in re.findall(r'^import .* from "([^"]+)";$', text, re.MULTILINE)]
    assert [path for path in [*of_page, *imported] if not path.is_file()] == []


@pytest.mark.parametrize("name", OURS)
def test_nothing_becomes_markup_or_program_that_was_text(name: str) -> None:
    """The policy of the page forbids scripts and styles within the document; the rest is forbidden here."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
    assert name != "index.html" or re.findall(r"<style|<script>|\son\w+=|\sstyle=", text) == []


def test_people_read_words_and_no_names_of_classes() -> None:
    """A program that renames a class once changed the texts of the page, too."""
    html, tables = ((FOLDER / name).read_text(encoding="utf-8") for name in ("index.html", "tables.js"))
    texts = [*re.findall(r">([^<>]+)<", html), *re.findall(r'(?:aria-label|title|placeholder)="([^"]+)"', html)]
    texts += re.findall(r'^ +\["([^"]+)", \(one\)', tables, re.MULTILINE)
    assert {"Actors", "Tokens"} <= {*texts}
    assert re.findall(r"\b[A-Z][a-z]+[A-Z][a-z]+\b", " ".join(texts).replace("JavaScript", "")) == []


@pytest.mark.parametrize("name", OURS)
def test_a_file_stays_small(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8").count("\n") < 300


def test_every_id_that_the_program_asks_for_is_in_the_document() -> None:
    ids = set(re.findall(r'\bid="([\w-]+)"', (FOLDER / "index.html").read_text(encoding="utf-8")))
    programs = [(FOLDER / name).read_text(encoding="utf-8") for name in OURS if name.endswith(".js")]
    asked = {one for text in programs for one in re.findall(r'byId\("([\w-]+)"\)', text)}
    assert asked
    assert asked - ids == set()


async def test_browsers_get_the_page_and_others_a_few_words() -> None:
    async with rig() as r, r.http() as http:
        page, plain, head = await http.get("/", headers=HTML), await http.get("/"), await http.head("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.content == (FOLDER / "index.html").read_bytes()
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert plain.headers["content-type"].startswith("text/plain")
        assert plain.text.startswith("Tardigrade is running\n")
        assert head.status_code == 200
        assert {page.headers["vary"], plain.headers["vary"]} == {"Accept"}


async def test_every_file_is_served_once_and_then_asked_about() -> None:
    async with rig() as r, r.http() as http:
        for name in NAMES:
            answer = await http.get(f"/page/{name}")
            assert (answer.status_code, answer.content) == (200, (FOLDER / name).read_bytes()), name
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = await http.get(f"/page/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert (await http.get(f"/page/{name}", headers={"If-None-Match": '"old"'})).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "", "../snapshot.py", "%2e%2e/snapshot.py", "..%2fsnapshot.py", "/etc/passwd"])
async def test_no_other_file_is_opened(name: str) -> None:
    async with rig() as r, r.http() as http:
        url = httpx.URL("http://gateway").copy_with(raw_path=f"/page/{name}".encode())
        assert (await http.get(url)).status_code == 404
