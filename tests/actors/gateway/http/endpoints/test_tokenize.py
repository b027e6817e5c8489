"""/tokenize and /detokenize: vLLM's fields, ids that generation would use, and refusals that name the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.text.models.folder_text import FolderText
from tests.support.gateway.gateway_rig import rig

HELLO = [{"role": "user", "content": "Hello"}]
SERVED = "hash-chain"
IDS_ONLY = {"model_type": "llama", "vocab_size": 100, "eos_token_id": 2}


async def test_text_becomes_ids_and_ids_become_text() -> None:
    async with rig(with_scheduler=False, max_length=512) as r, r.http() as http:
        answer = await http.post("/tokenize", json={"model": SERVED, "prompt": "Hi", "return_token_strs": True})
        assert answer.status_code == 200, "it is answered before a scheduler is there"
        assert answer.json() == {"count": 2, "max_model_len": 512, "tokens": [72, 105], "token_strs": ["72 ", "105 "]}
        plain = (await http.post("/tokenize", json={"prompt": ""})).json()
        assert plain == {"count": 0, "max_model_len": 512, "tokens": [], "token_strs": None}
        chat = (await http.post("/tokenize", json={"messages": HELLO, "add_generation_prompt": True})).json()
        assert chat["tokens"] == list(b"user: Hello\nassistant: ")
        long = (await http.post("/tokenize", json={"prompt": "x" * 100_000})).json()
        assert long["count"] == 100_000, "also what is longer than the context"
        for tokens, text in (([72, 105], "72 105 "), ([], ""), ([5] * 5000, "5 " * 5000)):
            answer = await http.post("/detokenize", json={"model": SERVED, "tokens": tokens})
            assert (answer.status_code, answer.json()) == (200, {"prompt": text})


async def test_a_conversation_is_told_of_its_tools_as_the_model_is() -> None:
    tools = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
    async with rig() as r, r.http() as http:
        told = {"messages": HELLO, "tools": tools}
        answer = (await http.post("/v1/chat/completions", json={**told, "max_tokens": 1, "return_token_ids": True})).json()
        assert (await http.post("/tokenize", json=told)).json()["tokens"] == answer["prompt_token_ids"]
        refused = await http.post("/tokenize", json={"prompt": "x", "tools": tools})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")


@pytest.mark.slow
async def test_a_real_tokenizer_gives_what_it_was_given(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with rig(with_scheduler=False, model_folder=str(smollm2_text_folder)) as r, r.http() as http:
        text = "naïve café, 東京, 🙂"
        answer = (await http.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
        assert answer["tokens"] == smollm2_text.encode(text)
        assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
        assert (await http.post("/detokenize", json={"tokens": answer["tokens"]})).json() == {"prompt": text}
        chat = (await http.post("/tokenize", json={"messages": HELLO})).json()["tokens"]
        assert chat == smollm2_text.encode_chat(HELLO)
        shown = (await http.post("/detokenize", json={"tokens": chat})).json()["prompt"]
        assert shown.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"), "special tokens are shown"


REFUSED: list[tuple[str, Any, int, str | None]] = [
    ("/tokenize", {}, 400, "prompt"),
    ("/tokenize", {"prompt": "x", "messages": HELLO}, 400, "prompt"),
    ("/tokenize", {"prompt": 5}, 400, "prompt"),
    ("/tokenize", {"prompt": "x", "model": "other"}, 404, "model"),
    ("/tokenize", {"prompt": "x", "return_token_strs": "yes"}, 400, "return_token_strs"),
    ("/tokenize", {"prompt": "x", "max_tokens": 5}, 400, "max_tokens"),
    ("/tokenize", {"messages": []}, 400, "messages"),
    ("/tokenize", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role"),
    ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, 400, "add_special_tokens"),
    ("/tokenize", {"messages": HELLO, "continue_final_message": True}, 400, "continue_final_message"),
    ("/tokenize", [1], 400, None),
    ("/detokenize", {}, 400, "tokens"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ("/detokenize", {"tokens": [1, -1]}, 400, "tokens[1]"),
    ("/detokenize", {"tokens": [1.5]}, 400, "tokens[0]"),
    ("/detokenize", {"tokens": [32_768]}, 400, "tokens"),
    ("/detokenize", {"tokens": [2**40]}, 400, "tokens[0]"),
    ("/detokenize", {"tokens": [1], "model": "other"}, 404, "model"),
]


async def test_bad_input_is_refused_by_name() -> None:
    async with rig(with_scheduler=False, max_body_bytes=100_000) as r, r.http() as http:
        for path, body, status, field in REFUSED:
            answer = await http.post(path, content=json.dumps(body))
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (status, field), (path, body, error)
            assert error["type"] == "invalid_request_error"
        for path in ("/tokenize", "/detokenize"):
            assert (await http.post(path, content=b"{")).status_code == 400
            assert (await http.post(path, content=b'{"prompt": "\xff"}')).status_code == 400
            assert (await http.post(path, content=b"x" * 200_000)).status_code == 413
            assert (await http.get(path)).status_code == 405


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})])
async def test_a_model_without_a_tokenizer_says_so(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(IDS_ONLY))
    async with rig(with_scheduler=False, model_folder=str(tmp_path)) as r, r.http() as http:
        answer = await http.post(path, json=body)
        assert answer.status_code == 400
        assert "this model has no tokenizer" in answer.json()["error"]["message"]
        assert "completions" not in answer.text, "that endpoint would answer with empty text"
