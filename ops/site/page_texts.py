"""A document of the repository as a page of the site: its links lead to pages of the site. Pure, but for `write_pages`."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ops.site.navigation import Chapter, Page, pages_of
from ops.site.reference import reference_page

REPO = Path(__file__).parents[2]
IMAGE_FOLDERS = ("images", "media")
_FENCE = re.compile(r"^```.*?^```\s*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_FILE_NAME = re.compile(r"\[(?:docs/)?([\w]+\.md)\](?=\()")
_BOLD_BEFORE_LIST = re.compile(r"^(\*\*[^*\n]+\*\*)\n(?=[-*] )", re.MULTILINE)


class LeadsNowhere(Exception):
    """A link of a document to something that the site does not have. The text names both."""


def page_text(document: str, text: str, pages: Mapping[str, Page]) -> str:
    """The text of a page. `document`: its path in the repository; `pages`: the page of each document of the site.

    A link that is called as its file gets the title of its page.

    Raises: LeadsNowhere.
    """

    def target(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(document), match[1]))
        if path in pages:
            return pages[path].name
        folder, _, rest = path.removeprefix("docs/").partition("/")
        if path.startswith("docs/") and folder in IMAGE_FOLDERS:
            return f"{folder}/{rest}"
        raise LeadsNowhere(f"{document}: links to {match[1]}, which is no page of the site")

    titles = {page.source.rpartition("/")[2]: page.title for page in pages.values()}
    parts, end = list[str](), 0
    for fence in _FENCE.finditer(text):
        parts += [_prose(text[end : fence.start()], target, titles), fence[0]]
        end = fence.end()
    return "".join([*parts, _prose(text[end:], target, titles)])


def _prose(text: str, target: Callable[[re.Match[str]], str], titles: Mapping[str, str]) -> str:
    """Text between code. A list directly after a line in bold is one on GitHub; here it needs an empty line before it."""
    titled = _FILE_NAME.sub(lambda match: f"[{titles.get(match[1], match[1])}]", text)
    return _BOLD_BEFORE_LIST.sub(r"\1\n\n", _LINK.sub(target, titled))


def write_pages(folder: Path, sections: Sequence[Chapter], repo: Path = REPO) -> None:
    """Write the pages of these sections and their pictures into a folder, which is emptied first.

    Raises: LeadsNowhere, OSError.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = pages_of(sections)
    by_document = {page.source: page for page in pages}
    for page in pages:
        text = _drawn(page) if page.is_drawn else _read(repo, page, by_document)
        (folder / page.name).write_text(f"{_head(page)}{text}", encoding="utf-8")
    for name in IMAGE_FOLDERS:
        shutil.copytree(repo / "docs" / name, folder / name)


def _head(page: Page) -> str:
    """What the search has to know of a page."""
    return "" if page.weight == 1.0 else f"---\nsearch:\n  boost: {page.weight}\n---\n\n"


def _drawn(page: Page) -> str:
    return {"reference.md": reference_page}[page.name]()


def _read(repo: Path, page: Page, pages: Mapping[str, Page]) -> str:
    return page_text(page.source, (repo / page.source).read_text(encoding="utf-8"), pages)
