"""Embeddings over HTTP: the official openai and ollama clients, what is refused, and deaths of the embedder in between."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from tests.support.answers.client_libraries import ollama, openai
from tests.support.embedding.embedders import DIMENSIONS, HeldEmbedder, add_embedder, formula, gateway_fields
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S

CLS, SEP, HELLO = 101, 102, 7592
ONE = formula([CLS, HELLO, SEP])


def url_of(r: Rig) -> str:
    host, port = r.address
    return f"http://{host}:{port}"


async def test_the_openai_client() -> None:
    async with rig(with_socket=True, **gateway_fields()) as r:
        await add_embedder(r)
        async with openai.AsyncOpenAI(base_url=f"{url_of(r)}/v1", api_key="none", timeout=DEADLINE_S) as client:
            create = client.embeddings.create
            answer = await create(model="minilm", input="hello")  # it asks for base64, and decodes it
            assert (answer.model, answer.data[0].index, answer.usage.prompt_tokens) == ("minilm", 0, 3)
            assert np.allclose(answer.data[0].embedding, ONE, atol=1e-7)
            two = await create(model="minilm", input=["hello hello", "hello"], encoding_format="float")
            assert np.allclose(two.data[1].embedding, ONE, atol=1e-7)
            assert two.usage.total_tokens == 7
            ids = await create(model="minilm", input=[[5, 6, 7], [8]])
            assert np.allclose([one.embedding for one in ids.data], [formula([5, 6, 7]), formula([8])], atol=1e-7)
            short = (await create(model="minilm", input="hello", dimensions=2)).data[0].embedding
            assert np.allclose(short, ONE[:2] / np.linalg.norm(ONE[:2]), atol=1e-6)
            cut = await create(model="minilm", input="hello " * 99, extra_body={"truncate_prompt_tokens": -1})
            assert cut.usage.prompt_tokens == 16
            with pytest.raises(openai.NotFoundError, match="text-embedding-3-small"):
                await create(model="text-embedding-3-small", input="hello")
            assert [one.id async for one in client.models.list()] == ["hash-chain", "minilm"]
            assert (await client.models.retrieve("minilm")).id == "minilm"


async def test_a_model_that_is_asked_for_what_the_other_one_does_is_refused_with_what_it_does() -> None:
    turns = [{"role": "user", "content": "hi"}]
    texts = {
        **{path: {"messages": turns} for path in ("/v1/chat/completions", "/api/chat")},
        **{path: {"prompt": "hi"} for path in ("/v1/completions", "/v1/generate", "/api/generate", "/tokenize")},
        **{"/v1/messages": {"messages": turns, "max_tokens": 1}, "/v1/responses": {"input": "hi"}},
    }
    vectors = {path: {"input": "hi"} for path in ("/v1/embeddings", "/api/embed")}
    async with rig(**gateway_fields()) as r, r.http() as http:
        for path, body in texts.items():
            for name in ("minilm", "minilm:latest"):
                refused = await http.post(path, json=body | {"model": name})
                assert refused.status_code == 404, path
                assert "which computes embeddings only (/v1/embeddings)" in refused.text, path
            assert "embeddings" not in (await http.post(path, json=body | {"model": "gpt-4"})).text, path
        for path, body in vectors.items():
            refused = await http.post(path, json=body | {"model": "hash-chain"})
            assert refused.status_code == 404, path
            assert "which generates text only" in refused.text, path


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/embed", "/api/embeddings"])
async def test_the_log_has_a_line_for_each_call(path: str) -> None:
    with capture_logs() as log:
        async with rig(**gateway_fields()) as r, r.http() as http:
            await add_embedder(r)
            body = {"prompt": "hello"} if path == "/api/embeddings" else {"input": "hello"}
            first = await http.post(path, json=body, headers={"X-Request-Id": "mine"})
            second = await http.post(path, json=body)
    lines = [line for line in log if line["event"] == "request"]
    assert [line["x_request_id"] for line in lines if "x_request_id" in line] == [first.headers["X-Request-Id"]] == ["mine"]
    assert lines[1]["request"] == second.headers["X-Request-Id"] != lines[0]["request"]
    api = {"/v1/embeddings": "embeddings", "/api/embed": "ollama_embed", "/api/embeddings": "ollama_embeddings"}[path]
    told = ("api", "model", "status", "ending", "texts", "prompt_tokens", "output_tokens")
    assert [tuple(line[name] for name in told) for line in lines] == [(api, "minilm", 200, "stop", 1, 3, 0)] * 2


async def test_a_client_that_leaves_its_embeddings_has_a_line() -> None:
    with capture_logs() as log:
        async with (
            rig(with_socket=True, **gateway_fields()) as r,
            openai.AsyncOpenAI(base_url=f"{url_of(r)}/v1", api_key="none", timeout=DEADLINE_S) as client,
        ):
            call = asyncio.ensure_future(client.embeddings.create(model="minilm", input="hello"))  # nobody computes it
            await r.cluster.wait_until(lambda: r.gateway.manager.gate.n_active == 1)
            call.cancel()
            await r.cluster.wait_until(lambda: r.gateway.manager.gate.n_active == 0)
    assert [(line["status"], line["ending"]) for line in log if line["event"] == "request"] == [(499, "cancelled")]


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
async def test_ollamas_lists_have_the_embedding_model_and_where_it_is(device: str) -> None:
    async with rig(with_socket=True, **gateway_fields(), embedding_device=device) as r:
        client = ollama.AsyncClient(url_of(r), timeout=DEADLINE_S)
        listed, loaded = (await client.list()).models, (await client.ps()).models
        assert [one.model for one in listed] == [one.model for one in loaded] == ["hash-chain:latest", "minilm:latest"]
        minilm = loaded[1]
        assert minilm.size is not None
        assert listed[1].size == minilm.size > 40_000_000
        assert minilm.size_vram == (0 if device == "cpu" else minilm.size)
        assert (minilm.context_length, len(minilm.digest or "")) == (16, 64)
        shown = await client.show("minilm")
        assert shown.capabilities == ["embedding"]
        assert (shown.modelinfo or {})["bert.embedding_length"] == DIMENSIONS
        with pytest.raises(ollama.ResponseError, match='model: expected "hash-chain", got "nomic"'):
            await client.show("nomic")


async def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[5] / "docs" / "api.md").read_text(encoding="utf-8")
    examples = re.findall(r"```json\n(.*?)\n```", page.partition("\n## Embeddings\n")[2], re.DOTALL)
    body, shown = (json.loads(example) for example in examples[:2])
    async with rig(**gateway_fields() | {"embedding_model": body["model"], "embedding_dimensions": 384}) as r, r.http() as http:
        await add_embedder(r)
        answer = (await http.post("/v1/embeddings", json=body)).json()
    assert list(answer) == list(shown)
    assert list(answer["data"][0]) == list(shown["data"][0])
    assert answer["usage"] == shown["usage"]
    body, fields = json.loads(examples[2]), {"embedding_prompts": {"query": "hello "}, "embedding_dimensions": 1024}
    async with rig(**gateway_fields() | fields | {"embedding_model": body["model"]}) as r, r.http() as http:
        await add_embedder(r)
        found = [(await http.post("/v1/embeddings", json=one)).json() for one in (body, body | {"prompt_name": ""})]
    assert found[0]["usage"]["prompt_tokens"] == found[1]["usage"]["prompt_tokens"] + 1


async def test_prompts_of_the_model_stand_before_texts() -> None:
    prompts = {"embedding_prompts": {"query": "hello ", "document": ""}, "embedding_default_prompt": "query"}
    async with rig(**gateway_fields() | prompts) as r, r.http() as http:
        await add_embedder(r)
        asked = [None, {"prompt_name": "query"}, {"prompt_name": "document"}, {"prompt_name": ""}]
        answers = [await http.post("/v1/embeddings", json={"input": "hello"} | (one or {})) for one in asked]
        found = [answer.json()["data"][0]["embedding"] for answer in answers]
        with_prompt = formula([CLS, HELLO, HELLO, SEP])
        assert np.allclose(found, [with_prompt, with_prompt, ONE, ONE], atol=1e-7)
        ollama_answer = await http.post("/api/embed", json={"input": "hello"})
        assert np.allclose(ollama_answer.json()["embeddings"], [with_prompt], atol=1e-7)
        ids = await http.post("/v1/embeddings", json={"input": [5, 6]})
        assert np.allclose(ids.json()["data"][0]["embedding"], formula([5, 6]), atol=1e-7)
        for body, said in (
            ({"input": "hello", "prompt_name": "passage"}, "one of ['query', 'document'], the prompts of this model"),
            ({"input": [5, 6], "prompt_name": "query"}, "null beside token ids"),
        ):
            answer = await http.post("/v1/embeddings", json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_name")
            assert said in answer.json()["error"]["message"]


async def test_vectors_that_the_model_does_not_normalise_are_only_cut() -> None:
    async with rig(**gateway_fields() | {"embedding_normalized": False}) as r, r.http() as http:
        await add_embedder(r)
        answer = await http.post("/v1/embeddings", json={"input": "hello", "dimensions": 2})
        assert np.allclose(answer.json()["data"][0]["embedding"], ONE[:2], atol=1e-7)


async def test_the_ollama_client() -> None:
    async with rig(with_socket=True, **gateway_fields()) as r:
        await add_embedder(r)
        client = ollama.AsyncClient(url_of(r), timeout=DEADLINE_S)
        answer = await client.embed("minilm:latest", ["hello", "hello " * 99])
        async with r.http() as http:
            assert (await http.post("/v1/embeddings", json={"input": "a", "model": "minilm:latest"})).status_code == 200
            assert (await http.get("/v1/models/minilm:latest")).json()["id"] == "minilm"
        assert np.allclose(answer.embeddings[0], ONE, atol=1e-7)
        assert answer.prompt_eval_count == 3 + 16
        assert np.allclose(
            (await client.embed("minilm", "hello", dimensions=2)).embeddings, [ONE[:2] / np.linalg.norm(ONE[:2])]
        )
        assert np.allclose((await client.embeddings("minilm", "hello")).embedding, ONE, atol=1e-7)
        with pytest.raises(ollama.ResponseError, match="input: expected at most 16 tokens"):
            await client.embed("minilm", "hello " * 99, truncate=False)


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "input", "expected"),
        ({"input": ""}, "input", "an empty string"),
        ({"input": []}, "input", "not empty"),
        ({"input": ["a", 1]}, "input", "text, token ids, or a list of either"),
        ({"input": ["a"] * 5}, "input", "1 to 4 texts"),
        ({"input": "hello " * 99}, "input", "at most 16 tokens"),
        ({"input": [5, 99999]}, "input", "token ids from 0 to 30521"),
        ({"input": "a", "dimensions": 5}, "dimensions", f"1 to {DIMENSIONS}"),
        ({"input": "a", "dimensions": 0}, "dimensions", f"1 to {DIMENSIONS}"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "float"),
        ({"input": "a", "truncate_prompt_tokens": 17}, "truncate_prompt_tokens", "1 to 16"),
        ({"input": "a", "model": "x"}, "model", "minilm"),
    ],
)
async def test_what_is_refused(body: dict[str, object], field: str, said: str) -> None:
    async with rig(**gateway_fields(), max_batch=4) as r, r.http() as http:
        answer = await http.post("/v1/embeddings", json=body)
        assert answer.status_code in (400, 404)
        assert answer.json()["error"]["param"] == field
        assert said in answer.json()["error"]["message"]
        assert r.manager.gate.n_active == 0


async def test_without_an_embedding_model() -> None:
    async with rig() as r, r.http() as http:
        for path, body in (
            ("/v1/embeddings", {"input": "a"}),
            ("/api/embed", {"input": "a"}),
            ("/api/embeddings", {"prompt": "a"}),
        ):
            answer = await http.post(path, json=body)
            assert answer.status_code == 404
            assert "computes no embeddings" in answer.text


async def test_a_death_of_the_embedder_costs_no_answer() -> None:
    async with rig(**gateway_fields()) as r, r.http() as http:
        embedder = HeldEmbedder(r.cluster)
        r.cluster.introduce(embedder)
        calls = [asyncio.create_task(http.post("/v1/embeddings", json={"input": [[5, n + 1]]})) for n in range(8)]
        await r.cluster.wait_until(lambda: len(embedder.held) == 4 and r.manager.gate.n_active == 8)
        await r.cluster.kill("embedder/0")
        await add_embedder(r, incarnation=2)
        for n, call in enumerate(calls):
            assert np.allclose((await call).json()["data"][0]["embedding"], formula([5, n + 1]), atol=1e-7)


async def test_a_drain_waits_for_texts() -> None:
    async with rig(**gateway_fields()) as r, r.http() as http:
        embedder = HeldEmbedder(r.cluster)
        r.cluster.introduce(embedder)
        call = asyncio.create_task(http.post("/v1/embeddings", json={"input": "hello", "encoding_format": "base64"}))
        await r.cluster.wait_until(lambda: len(embedder.held) == 1)
        r.gateway.drain(60.0)
        await r.cluster.settle()
        assert r.cluster.drained == set()
        assert (await http.post("/v1/embeddings", json={"input": "hello"})).status_code == 503
        embedder.answer()
        raw = base64.b64decode((await call).json()["data"][0]["embedding"])
        assert np.array_equal(np.frombuffer(raw, "<f4"), ONE)
        await r.cluster.wait_until(lambda: r.cluster.drained == {"gateway/0"})


async def test_texts_end_with_their_time() -> None:
    async with rig(**gateway_fields(), request_timeout_s=0.01) as r, r.http() as http:
        answer = await http.post("/v1/embeddings", json={"input": "hello"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline")
        assert r.manager.gate.n_active == 0
