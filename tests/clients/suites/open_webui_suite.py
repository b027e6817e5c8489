"""Open WebUI: chats over both of its connections, a tool that it runs, titles, documents with embeddings, the other APIs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

URL, MODEL, EMBEDDINGS = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"], "all-MiniLM-L6-v2"
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What time is it?"}]
TOOLS = '''
class Tools:
    def get_time(self, zone: str) -> str:
        """
        The time of a zone.
        :param zone: the zone
        """
        return "found-" + str(40 + 2)
'''
SETTINGS = {
    "OPENAI_API_BASE_URL": f"{URL}/v1",
    "OPENAI_API_KEY": "none",
    "OLLAMA_BASE_URL": URL,
    "RAG_EMBEDDING_ENGINE": "openai",
    "RAG_EMBEDDING_MODEL": EMBEDDINGS,
    "RAG_OPENAI_API_BASE_URL": f"{URL}/v1",
    "RAG_OPENAI_API_KEY": "none",
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "none",
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "true",
}
PARAMS = {
    "max_tokens": 16, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "seed": 42, "stop": ["</end>"],
    "frequency_penalty": 0, "presence_penalty": 0, "repeat_penalty": 1.1, "num_ctx": 2048, "num_keep": 24,
    "logit_bias": "12:5", "keep_alive": "5m", "think": False,
}  # fmt: skip
START_S, ANSWER_S = 240.0, 300.0


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a running Open WebUI that is signed in."""
    folder = tmp_path_factory.mktemp("open-webui")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    variables = os.environ | SETTINGS | {"DATA_DIR": str(folder), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=variables, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_S) as client:
                wait_until_it_answers(client, server)
                token = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
                client.headers["Authorization"] = f"Bearer {token}"
                yield client
        finally:
            server.kill()
            server.wait()


def wait_until_it_answers(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and server.poll() is None:
        try:
            if client.get("/health").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError("Open WebUI does not answer")


def ask(app: httpx.Client, path: str, body: dict[str, Any]) -> str:
    answer = app.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_both_connections_name_the_models(app: httpx.Client) -> None:
    names = [one["id"] for one in app.get("/api/models").json()["data"]]
    assert names == [MODEL, EMBEDDINGS, f"{MODEL}:latest", f"{EMBEDDINGS}:latest"]
    assert app.get("/ollama/api/version").json()["version"]
    assert len(app.get("/ollama/api/ps").json()["models"]) == 2


@pytest.mark.parametrize("model", [MODEL, f"{MODEL}:latest"])
def test_a_chat_over_a_connection(app: httpx.Client, model: str) -> None:
    for stream in (True, False):
        asked = {"model": model, "messages": QUESTION, "stream": stream, "params": PARAMS}
        assert '"content"' in ask(app, "/api/chat/completions", asked)
    follow = [*QUESTION, {"role": "assistant", "content": "Noon."}, {"role": "user", "content": "Sure?"}]
    ask(app, "/api/chat/completions", {"model": model, "messages": follow, "stream": True, "params": {"max_tokens": 8}})
    ask(app, "/api/v1/tasks/emoji/completions", {"model": model, "prompt": "It is noon."})


def test_a_title_is_made(app: httpx.Client) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "Noon."}]
    assert "choices" in ask(app, "/api/v1/tasks/title/completions", {"model": MODEL, "messages": messages})


def test_a_tool_is_offered_by_the_api_and_in_the_prompt(app: httpx.Client) -> None:
    ask(app, "/api/v1/tools/create", {"id": "time", "name": "Time", "content": TOOLS, "meta": {"description": "Time"}})
    for model in (MODEL, f"{MODEL}:latest"):
        for calling in ("native", "default"):
            params = {"max_tokens": 40, "function_calling": calling}
            asked = {"model": model, "messages": QUESTION, "stream": True, "tool_ids": ["time"], "params": params}
            ask(app, "/api/chat/completions", asked)


def test_a_tool_is_run_and_its_result_is_read(app: httpx.Client) -> None:
    """As its page does it: the answer goes into a chat that is kept, and not back to the caller."""
    said = {"id": "q", "parentId": None, "childrenIds": ["a"], "role": "user", "content": QUESTION[0]["content"]}
    blank = {"id": "a", "parentId": "q", "childrenIds": [], "role": "assistant", "content": "", "model": MODEL}
    history = {"messages": {"q": said, "a": blank}, "currentId": "a"}
    made = ask(app, "/api/v1/chats/new", {"chat": {"title": "Time", "models": [MODEL], "history": history}})
    chat = json.loads(made)["id"]
    names = {"chat_id": chat, "id": "a", "session_id": "page", "parent_id": "q"}
    asked = {"model": MODEL, "messages": QUESTION, "stream": True, "tool_ids": ["time"], **names}
    ask(app, "/api/chat/completions", {**asked, "params": {"max_tokens": 40, "function_calling": "native"}})
    until_s = time.monotonic() + ANSWER_S
    while "found-42" not in (kept := app.get(f"/api/v1/chats/{chat}").text) and time.monotonic() < until_s:
        time.sleep(0.5)
    assert "found-42" in kept
    while app.get(f"/api/tasks/chat/{chat}").json()["task_ids"] and time.monotonic() < until_s:
        time.sleep(0.5)


def test_a_document_is_found_by_its_embedding(app: httpx.Client) -> None:
    text = {"name": "text", "content": "A tardigrade survives. " * 20, "collection_name": "texts"}
    ask(app, "/api/v1/retrieval/process/text", text)
    found = ask(app, "/api/v1/retrieval/query/collection", {"collection_names": ["texts"], "query": "Who survives?", "k": 1})
    assert "tardigrade" in found


def test_the_apis_that_it_passes_on(app: httpx.Client) -> None:
    ask(app, "/api/embeddings", {"model": EMBEDDINGS, "input": ["a", "b"]})
    ask(app, "/ollama/api/embed", {"model": f"{EMBEDDINGS}:latest", "input": ["a"]})
    ask(app, "/ollama/api/show", {"model": f"{MODEL}:latest"})
    made = {"model": f"{MODEL}:latest", "prompt": "hi", "stream": False, "options": {"num_predict": 4}}
    assert '"response"' in ask(app, "/ollama/api/generate", made)
    ask(app, "/openai/responses", {"model": MODEL, "input": "hi", "max_output_tokens": 4})
    assert '"stop_reason"' in ask(app, "/api/v1/messages", {"model": MODEL, "max_tokens": 8, "messages": QUESTION})
