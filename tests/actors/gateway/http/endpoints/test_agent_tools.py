"""Tools of agents over /v1/responses: custom tools and namespaces are called, those of servers are passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.text.models.folder_text import FolderText
from tests.support.answers.client_libraries import openai
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.thinking.thinking_server import answer_after_a_kill, thinking_server
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

PATCH = '*** Begin "Patch"\n+ é'
READ: Any = {
    "type": "function",
    "name": "read",
    "description": "Reads a file",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
TOOLS: list[Any] = [
    {"type": "web_search", "external_web_access": False},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
    {"type": "namespace", "name": "mcp__files", "description": "Files", "tools": [READ, {"type": "image_generation"}]},
    {"type": "custom", "name": "note"},
]
ASKED: dict[str, Any] = {"model": "m", "input": "Mend it.", "tools": TOOLS}
CALLS = "".join(
    f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>\n"
    for name, arguments in (("patch", {"input": PATCH}), ("mcp__files__read", {"path": "a.py"}), ("note", {"text": "b"}))
)
PASSED_OVER = "tools[0].web_search, tools[2].tools[1].image_generation"


def said(prompt: str) -> str:
    return "It is done." if "mended" in prompt else CALLS


async def test_calls_come_in_the_form_of_their_tools_and_go_back_so(
    smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    async with thinking_server(smollm2_text_folder, smollm2_text, said, with_socket=True) as r:
        host, port = r.address
        client = openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="any", timeout=DEADLINE_S, max_retries=0)
        async with client:
            raw = await client.responses.with_raw_response.create(**ASKED)
            whole: Any = raw.parse()
            assert raw.headers["x-ignored-fields"] == PASSED_OVER
            _, patch, read, note = whole.output
            assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", PATCH)
            assert (read.type, read.name, read.namespace) == ("function_call", "read", "mcp__files")
            assert json.loads(read.arguments) == {"path": "a.py"}
            assert json.loads(note.input) == {"text": "b"}, "what the model wrote in place of a text reaches the tool"
            assert [tool.type for tool in whole.tools] == ["custom", "namespace", "custom"]
            async with client.responses.stream(**ASKED) as stream:
                events: list[Any] = [event async for event in stream]
                final: Any = await stream.get_final_response()
            assert [(item.type, item.call_id) for item in final.output[1:]] == [
                (event.item.type, event.item.call_id)
                for event in events
                if event.type == "response.output_item.done" and event.item.type != "reasoning"
            ]
            deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
            assert deltas == [PATCH, note.input]
            sent_back: list[Any] = [
                {"role": "user", "content": "Mend it."},
                {"type": "web_search_call", "status": "completed"},
                *[item.model_dump() for item in final.output],
                {"type": "custom_tool_call_output", "call_id": final.output[1].call_id, "output": "mended"},
                {"type": "function_call_output", "call_id": final.output[2].call_id, "output": "empty"},
                {"type": "custom_tool_call_output", "call_id": final.output[3].call_id, "output": "no"},
            ]
            second = await client.responses.create(**{**ASKED, "input": sent_back})
            assert second.output_text == "It is done."
            prompt = smollm2_text.decode(r.scheduler().submits[-1].tokens.tolist())
            assert prompt.index(json.dumps({"input": PATCH}, ensure_ascii=False)) < prompt.rindex("mcp__files__read")
            assert "web_search" not in prompt


async def test_a_call_of_a_custom_tool_outlives_its_gateway(
    tmp_path: Path, smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    body, journal = {**ASKED, "stream": True, "reasoning": {"effort": "none"}}, str(tmp_path / "journal")
    n_before = len(smollm2_text.encode(CALLS[: CALLS.index("Begin")], add_special_tokens=False))
    async with thinking_server(smollm2_text_folder, smollm2_text, said, journal_path=journal) as r:
        stream = (await answer_after_a_kill(r, "/v1/responses", body, n_before)).decode()
        told = [json.loads(line.removeprefix("data: ")) for line in stream.split("\n") if line.startswith("data: ")]
        async with r.http() as http:
            shown = (await http.get("/v1/responses/one")).json()
    assert told[-1]["response"] == shown
    assert [item["type"] for item in shown["output"]] == ["custom_tool_call", "function_call", "custom_tool_call"]
    inputs = [part["input"] for part in told if part["type"] == "response.custom_tool_call_input.done"]
    assert inputs[0] == PATCH


@pytest.mark.parametrize("choice", [{"type": "custom", "name": "patch"}, {"type": "function", "name": "patch"}])
async def test_a_custom_tool_can_be_forced(smollm2_text_folder: Path, smollm2_text: FolderText, choice: dict[str, str]) -> None:
    async with thinking_server(smollm2_text_folder, smollm2_text, lambda _: "") as r, r.http() as http:
        forced = {**ASKED, "tool_choice": choice, "reasoning": {"effort": "none"}}
        assert (await http.post("/v1/responses", json=forced)).status_code == 200
        grammar = r.scheduler().submits[-1].terms.grammar
        assert grammar is not None
        assert "text that matches this grammar (lark)" in grammar.text


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"name": "f"}]}, "tools[0].type: expected"),
    ({"tools": [{"type": "custom"}]}, "tools[0].name: expected"),
    (
        {"tools": [{"type": "web_search"}, {"type": "custom", "name": "f", "format": {"type": "x"}}]},
        "tools[1].format: expected",
    ),
    ({"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar"}}]}, "tools[0].format: expected"),
    ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0]: expected"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [1]}]}, "tools[0].tools[0].type: expected"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name: expected"),
    ({"tools": [READ, {"type": "custom", "name": "read"}]}, "tools: expected tools of different names"),
    ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice: expected"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice: expected"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c"}]}, "input[0]: expected"),
    ({"input": [{"type": "custom_tool_call_output"}]}, 'input[0]: expected {"type": "custom_tool_call_output"'),
]


async def test_refusals_name_the_field() -> None:
    async with rig() as r, r.http() as http:
        for changed, words in REFUSED:
            answer = await http.post("/v1/responses", json={"model": "hash-chain", "input": "hi", **changed})
            assert answer.status_code == 400, answer.text
            assert words in answer.json()["error"]["message"]


async def test_strict_settings_refuse_what_is_passed_over_otherwise() -> None:
    body = {"model": "hash-chain", "input": "hi", "tools": [{"type": "web_search"}] * 40, "max_output_tokens": 2}
    async with rig(strict_fields=True) as r, r.http() as http:
        refused = await http.post("/v1/responses", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].type")
    async with rig() as r, r.http() as http:
        answer = await http.post("/v1/responses", json=body)
        assert answer.json()["tools"] == []
        assert len(answer.headers["x-ignored-fields"].split(", ")) == 32, "a header has room for so many"
        counted = await http.post("/v1/responses/input_tokens", json={"input": "hi", "tools": body["tools"]})
        assert counted.headers["x-ignored-fields"].startswith("tools[0].web_search")
