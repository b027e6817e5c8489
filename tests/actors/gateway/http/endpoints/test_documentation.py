"""/openapi.json and /docs: every route is in them, with its body, its words and every status that the gateway answers with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from actors.gateway.admission.chat_turns import ROLES
from actors.gateway.http.api import ENDPOINTS
from actors.gateway.http.openapi.document import openapi_document, path_of, statuses_of, summary_of
from actors.gateway.http.openapi.page import page_of
from actors.gateway.requests.refusals import STATUS_BY_CODE
from tests.support.gateway.gateway_rig import rig

DOCUMENT = openapi_document(ENDPOINTS, "1.0", is_strict=False)


def references_in(value: Any) -> set[str]:
    """Every `$ref` within a value."""
    if isinstance(value, list):
        return set().union(*map(references_in, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(references_in, value.values()))


def test_every_route_is_described() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(one.method, path_of(one)) for one in ENDPOINTS}
    names = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)
    for one in ENDPOINTS:
        assert summary_of(one) != path_of(one), f"the docstring of the handler of {one.path} says nothing"


def test_the_page_for_people_names_every_route() -> None:
    page = (Path(__file__).parents[5] / "docs" / "api.md").read_text(encoding="utf-8")
    named = {without_names(path) for path in re.findall(r"[` ](/[\w/{}.]*)", page)}
    assert [one.path for one in ENDPOINTS if without_names(path_of(one)) not in named] == []


def without_names(path: str) -> str:
    """A path with parameters that have no names."""
    return re.sub(r"\{\w+\}", "{}", path)


def test_every_route_that_reads_a_body_says_which() -> None:
    silent = {one.path for one in ENDPOINTS if one.method == "POST" and one.body is None and "{" not in one.path}
    assert silent == {"/ping"}  # whose body, if any, nobody reads
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references_in(DOCUMENT) <= known


def test_messages_are_described_with_their_roles() -> None:
    for body, n_roles in (("ChatBody", len(ROLES)), ("MessagesBody", 3)):
        turn = DOCUMENT["components"]["schemas"][body]["properties"]["messages"]["items"]
        assert (turn["type"], turn["required"]) == ("object", ["role"])
        roles = turn["properties"]["role"]["enum"]
        assert len(roles) == n_roles
        assert {"user", "assistant", "system"} <= set(roles)


def test_objects_of_a_chat_are_described() -> None:
    fields = DOCUMENT["components"]["schemas"]["ChatBody"]["properties"]
    (tools, _), (wanted, _), (structured, _) = (fields[n]["anyOf"] for n in ("tools", "response_format", "structured_outputs"))
    assert tools["items"]["properties"]["function"]["required"] == ["name"]
    assert wanted["properties"]["type"]["enum"] == ["text", "json_object", "json_schema"]
    assert set(structured["properties"]) == {"json", "json_object", "regex", "choice", "grammar"}


def test_every_status_is_described() -> None:
    for one in ENDPOINTS:
        assert {200, 400, 403, 408, 431, 500, 503} <= set(statuses_of(one))
        if one.body is not None:
            assert {*STATUS_BY_CODE.values(), 307, 499} <= set(statuses_of(one)), one.path


def test_only_strict_servers_say_that_unknown_fields_are_refused() -> None:
    strict = openapi_document(ENDPOINTS, "1.0", is_strict=True)
    assert strict["components"]["schemas"]["ChatBody"]["additionalProperties"] is False
    assert "additionalProperties" not in DOCUMENT["components"]["schemas"]["ChatBody"]


async def test_a_server_shows_them_and_the_page_needs_no_other_host() -> None:
    async with rig() as r, r.http() as http:
        document = (await http.get("/openapi.json")).json()
        assert document["paths"] == DOCUMENT["paths"]
        answer, again = await http.get("/docs"), await http.get("/openapi.json")
        assert again.json() == document
        assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == page_of(document)
    assert not re.search(r"//|<script|@import|url\(", answer.text.removeprefix("<!doctype html>"))
    for path in document["paths"]:
        assert f"<code>{path}</code>" in answer.text
