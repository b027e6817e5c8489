"""Pages of the site: their links and anchors lead somewhere, and the reference names every path, without building anything."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.http.openapi.document import path_of
from ops.site.__main__ import settings_text
from ops.site.navigation import SECTIONS, Chapter, Page, pages_of, present
from ops.site.page_texts import LeadsNowhere, page_text, write_pages
from ops.site.reference import reference_page, words
from tests.support.documents.code_blocks import REPO

PAGES = (Page("HTTP API", "api.md"), Page("A", "a.md"), Page("Security", "security.md", "SECURITY.md"))
NAMES = {page.source: page for page in PAGES}
HERE = present(lambda document: (REPO / document).is_file())


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub and the site make of the titles of a page."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_links_between_documents_lead_to_pages(tmp_path: Path) -> None:
    """And their anchors to titles."""
    write_pages(tmp_path, HERE)
    pages = {page.name: (tmp_path / page.name).read_text(encoding="utf-8") for page in pages_of(HERE)}
    lost = []
    for name, text in pages.items():
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
            if path and not (tmp_path / path).exists():
                lost.append(f"{name}: {path}")
            elif anchor and anchor not in anchors_of(pages[path or name]):
                lost.append(f"{name}: {path}#{anchor}")
    assert lost == []


def test_a_link_leads_to_the_page_of_a_document() -> None:
    text = "[a](api.md#fields) [s](../SECURITY.md) [m](media/kill.svg) [o](https://example.com/docs/a.md) [t](#here)"
    wanted = "[a](api.md#fields) [s](security.md) [m](media/kill.svg) [o](https://example.com/docs/a.md) [t](#here)"
    assert page_text("docs/a.md", text, NAMES) == wanted
    assert page_text("SECURITY.md", "[a](docs/api.md#tls)", NAMES) == "[a](api.md#tls)"


def test_a_link_that_is_called_as_its_file_gets_the_title_of_its_page() -> None:
    text = "[api.md](api.md#fields) [docs/api.md](api.md) [its own](api.md)"
    assert page_text("docs/a.md", text, NAMES) == "[HTTP API](api.md#fields) [HTTP API](api.md) [its own](api.md)"


def test_code_is_left_as_it_is() -> None:
    text = "```python\nnames[0](docs/a.md)\n```\n"
    assert page_text("docs/a.md", text, NAMES) == text


def test_a_list_after_a_line_in_bold_is_a_list() -> None:
    assert page_text("docs/a.md", "**How.**\n- one\n- two\n", NAMES) == "**How.**\n\n- one\n- two\n"


def test_a_link_to_what_the_site_does_not_have_is_refused() -> None:
    with pytest.raises(LeadsNowhere, match=r"docs/a\.md: links to \.\./Makefile"):
        page_text("docs/a.md", "[m](../Makefile)", NAMES)


def test_pages_without_a_document_are_left_out() -> None:
    sections = (
        Chapter("A", (Page("One", "one.md"), Page("Drawn", "drawn.md", is_drawn=True))),
        Chapter("B", (Page("Two", "two.md"),)),
    )
    assert present(lambda document: document == "docs/none.md", sections) == [Chapter("A", (sections[0].pages[1],))]


def test_the_settings_name_folders_and_pages() -> None:
    settings = json.loads(settings_text(SECTIONS[:1], Path("/pages"), Path("/site")))
    assert Path(settings["INHERIT"]).is_file()
    assert (settings["docs_dir"], settings["site_dir"]) == ("/pages", "/site")
    assert settings["nav"][0]["Start"][0] == {"Overview": "index.md"}


def test_the_reference_names_every_path_and_every_field_of_a_body() -> None:
    page = reference_page()
    assert [one.path for one in ENDPOINTS if f"### {one.method} {path_of(one)}\n" not in page] == []
    fields = {field for one in ENDPOINTS if one.body is not None for field in one.body.__struct_encode_fields__}
    assert len(fields) > 100
    assert [field for field in fields if f"| `{field}` |" not in page] == []


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 4}, "integer (≥ 0, ≤ 4)"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/ChatTurn"}}, "array of [ChatTurn](#chatturn)"),
        ({"enum": ["a", None]}, '`"a"`, `null`'),
        ({}, "any value"),
    ],
)
def test_a_schema_in_words(schema: dict[str, object], said: str) -> None:
    assert words(schema) == said
