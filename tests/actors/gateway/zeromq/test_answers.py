"""What a body of the HTTP API asks for, over ZeroMQ: several answers, calls, reasoning, echo, and the model's defaults.

All of it goes on where it was when the gateway is killed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from actors.gateway.requests.reader import Delta
from actors.gateway.text.channels import Splitting
from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.tools.dialects import Dialect, ToolRules
from actors.gateway.zeromq.chunks import AnswerWriter
from messages import public
from messages.client import AsyncClient
from messages.client.answer import calls_of, content_of
from messages.errors import InvalidRequest
from messages.generation.sampling import Sampling
from tests.support.answers.calling_server import calling_server
from tests.support.answers.written_answer import written
from tests.support.gateway.fake_scheduler import FakeScheduler, ids_text, oracle
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.gateway.zmq_clients import ZmqConnection
from tests.support.waiting import DEADLINE_S, next_turn, until

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
SPLITTING = Splitting(reasoning=ReasoningMarks("<think>", "</think>"), tools=ToolRules(Dialect.HERMES, ["get_weather", "now"]))
TEXTS = [
    *("<th", "ink>\nI ", "wonder.", "\n</think>\n\nLet", " me look.\n"),
    *("<tool", '_call>\n{"name": "get_weather', '", "arguments": {"ci', 'ty": "Pa', 'ris"}}\n</tool_call>'),
    *('\n<tool_call>\n{"name": "now", "arguments": {}}', "\n</tool_call>"),
]  # fmt: skip
BROKEN = ["<tool_call>", '{"name": "now", "arguments": ', '{"a": b}', "}", "</tool_call>"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: socket paths have a limit."""
    with TemporaryDirectory(prefix="tg-") as folder:
        yield Path(folder)


def settings_in(place: Path, **more: Any) -> dict[str, Any]:
    return {"zeromq_endpoint": f"ipc://{place}/zeromq-0", "journal_path": str(place / "journal"), **more}


async def successor(r: Rig) -> None:
    """kill -9 of the gateway, then the start of the next one on the same journal."""
    await r.kill_gateway()
    r.scheduler().running.clear()  # a scheduler drops the attempts of a dead gateway
    await r.start_gateway(r.gateway.spawn_spec.incarnation + 1)


async def step_to_the_end(scheduler: FakeScheduler, *working: asyncio.Future[Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not all(one.done() for one in working):
            scheduler.step(1)
            await next_turn()


async def test_several_answers_survive_the_gateway_and_are_those_of_http(place: Path) -> None:
    asked: dict[str, Any] = {"n": 3, "max_tokens": 20, "seed": 11, "logprobs": 1, "stop_tokens": [5]}
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        running = asyncio.ensure_future(client.generate([7, 8], request="mine", **asked))
        await until(lambda: len(scheduler.running) == 3)
        for _ in range(2):
            scheduler.step(4)
            await until(lambda: scheduler.acked == scheduler.sent)
            await successor(r)
            await until(lambda: len(scheduler.running) == 3)
        await step_to_the_end(scheduler, running)
        answer = await running
        seeds = [submit.sampling.seed for submit in scheduler.submits[:3]]
        assert [one.tokens for one in answer.choices] == [oracle([7, 8], 20, seed) for seed in seeds]
        assert [one.text for one in answer.choices] == [ids_text(one.tokens) for one in answer.choices]
        assert all(one.logprobs is not None and one.logprobs.n_tokens == 20 for one in answer.choices)
        assert {(piece.index, piece.first) for piece in answer.others[0].pieces} >= {(1, 0), (1, 4)}
        again = await client.generate([7, 8], request="mine", **asked)
        assert [one.tokens for one in again.choices] == [one.tokens for one in answer.choices]
        body = {"model": "hash-chain", "prompt": [7, 8], "n": 3, "max_tokens": 20, "seed": 11, "stop_token_ids": [5]}
        scheduler.is_automatic = True
        async with r.http() as http:
            choices = (await http.post("/v1/completions", json=body)).json()["choices"]
        assert [choice["text"] for choice in choices] == [one.text for one in answer.choices]


async def test_the_best_of_several_answers_survive_the_gateway(place: Path) -> None:
    asked: dict[str, Any] = {"n": 2, "best_of": 4, "max_tokens": 12, "seed": 11}
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        running = asyncio.ensure_future(client.generate([7, 8], request="mine", **asked))
        await until(lambda: len(scheduler.running) == 4)
        scheduler.step(4)
        await until(lambda: scheduler.acked == scheduler.sent)
        await successor(r)
        await until(lambda: len(scheduler.running) == 4)
        await step_to_the_end(scheduler, running)
        answer = await running
        assert (len(answer.choices), answer.logprobs) == (2, None)
        await until(lambda: r.manager.finished.undelivered.n_pending(0.0) == 0)
        submitted = {tuple(submit.tokens.tolist()) for submit in scheduler.submits[4:]}
        await successor(r)
        again = await client.generate([7, 8], request="mine", **asked)
        assert [one.tokens for one in again.choices] == [one.tokens for one in answer.choices]
    assert len(submitted) == 4, "all go on after their four tokens"


async def test_the_prompt_alone_is_scored_like_over_http(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = await client.generate("hello", max_tokens=0, echo=True)
        assert (answer.tokens, answer.text, answer.reason, answer.n_prompt) == ([], "hello", "length", 5)
        assert [piece.ids for piece in answer.pieces] == [[]]
        several = await client.generate("hello", max_tokens=0, n=3)
        assert [one.tokens for one in several.choices] == [[], [], []]
        await until(lambda: r.manager.finished.undelivered.n_pending(0.0) == 0)
        async with r.http() as http:
            body = {"prompt": "hello", "max_tokens": 0, "echo": True}
            (choice,) = (await http.post("/v1/completions", json=body)).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == (answer.text, answer.reason)


async def test_a_call_after_reasoning_comes_in_parts_and_survives_the_gateway(
    smollm2_text_folder: Path, smollm2_text: FolderText, place: Path
) -> None:
    """Killed after each eighth token. The parts are those of the answer over HTTP."""
    async with calling_server(smollm2_text_folder, smollm2_text, is_automatic=False, **settings_in(place)) as r:
        scheduler = r.scheduler()
        async with AsyncClient(r.settings.zeromq_endpoint) as client:
            running = asyncio.ensure_future(client.chat(QUESTION, tools=TOOLS, request="mine", max_tokens=200))
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await until(lambda: scheduler.running or running.done())
                    if running.done():
                        break
                    scheduler.step(8)
                    await until(lambda: scheduler.acked == scheduler.sent)
                    await successor(r)
            answer = await running
            n_submits = len(scheduler.submits)
            assert n_submits > 3
            with pytest.raises(InvalidRequest, match="another request"):
                await client.chat(QUESTION, tools=TOOLS, tool_choice="none", request="mine", max_tokens=200)
            scheduler.is_automatic = True
            turns = [*QUESTION, {"role": "assistant", "tool_calls": _sent_back(answer)}]
            told = [*turns, {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "sunny"}]
            last = await client.chat(told, tools=TOOLS, chat_template_kwargs={"enable_thinking": False})
            assert (last.text, last.reasoning, last.tool_calls) == ("It is sunny.", "", ())
        async with r.http() as http:
            body = {"messages": QUESTION, "tools": TOOLS, "max_tokens": 200}
            message = (await http.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
    (call,) = answer.tool_calls
    assert (answer.text, answer.reasoning, call.name, call.input) == ("", "I wonder.", "get_weather", {"city": "Paris"})
    assert answer.reasoning == message["reasoning_content"]
    assert call.arguments == message["tool_calls"][0]["function"]["arguments"]
    assert "".join(piece.reasoning for piece in answer.pieces) == "I wonder."


def _sent_back(answer: Any) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.tool_calls
    ]


@pytest.mark.parametrize("texts", [TEXTS, BROKEN, ["<think>", "cut off"], []])
def test_parts_are_the_same_wherever_a_stream_goes_on(texts: list[str]) -> None:
    """A new connection that begins at any token gets the rest of what an old one gets, call ids included."""
    request = written(texts, "zeromq", SPLITTING)
    (sequence,) = request.sequences

    def told(first: int, size: int) -> list[list[tuple[str, str, str]]]:
        """The parts, token by token, of a reader that begins at `first` and reads `size` tokens at a time."""
        writer, n, parts = AnswerWriter(request), len(texts), list[list[tuple[str, str, str]]]()
        for start in range(first, n, size):
            stop = min(start + size, n)
            for message in writer.messages(Delta(0, sequence, start, stop, "unused")):
                assert isinstance(message, public.Chunk)
                parts.append([(part.channel, part.text, part.call) for part in message.parts])
        last = writer.messages(Delta(0, sequence, n, n, "", sequence.tail, sequence.ended))
        parts.append([(p.channel, p.text, p.call) for m in last if isinstance(m, public.Chunk) for p in m.parts])
        return parts

    calm = told(0, 1)
    for first in range(len(texts) + 1):
        assert told(first, 1) == calm[first:]
    whole = [public.AnswerPart(channel=public.Channel(c), text=t, call=i) for group in calm for c, t, i in group]
    large = [public.AnswerPart(channel=public.Channel(c), text=t, call=i) for group in told(0, 100) for c, t, i in group]
    assert content_of(large) == content_of(whole)
    assert calls_of(large) == calls_of(whole)
    if texts is TEXTS:
        assert [(call.name, call.input) for call in calls_of(whole)] == [("get_weather", {"city": "Paris"}), ("now", {})]
        assert content_of(whole).strip() == "Let me look."
    if texts is BROKEN:
        assert (calls_of(whole), content_of(whole)) == ((), "".join(BROKEN))


async def test_echo_and_the_defaults_of_the_server(place: Path) -> None:
    """The prompt is repeated once, also to a connection that asks for the answer again; and 0 is not what nobody has said."""
    settings = settings_in(place, default_sampling={"temperature": 0.0, "top_p": 0.5})
    async with rig(**settings) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        for _ in range(2):
            answer = await client.generate("ab", max_tokens=3, echo=True, request="mine")
            assert answer.tokens == oracle([97, 98], 3), "greedy by default"
            assert answer.text == "ab" + ids_text(answer.tokens)
        await client.generate("ab", max_tokens=1, temperature=1.0, top_p=1.0)
        await client.generate("ab", max_tokens=1, sampling=Sampling())
        told = [(submit.sampling.temperature, submit.sampling.top_p) for submit in r.scheduler().submits]
        assert told == [(0.0, 0.5), (1.0, 1.0), (1.0, 1.0)]


async def test_what_cannot_be_served_is_refused_by_name(place: Path) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("n", {"prompt": "x", "n": 1000}),
        ("tools", {"prompt": "x", "tools": TOOLS}),
        ("tool_choice.function.name", {"messages": QUESTION, "tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}),
        ("messages[0].role", {"messages": [{"role": "robot", "content": "x"}]}),
        ("response_format", {"prompt": "x", "response_format": {"type": "yaml"}}),
        ("reasoning_effort", {"messages": QUESTION, "reasoning_effort": "huge"}),
        ("max_tokens", {"tokens": [1], "max_tokens": 100_000}),
        ("max_tokens", {"messages": QUESTION, "max_tokens": 0}),
        ("best_of", {"prompt": "x", "n": 2, "best_of": 1}),
    ]
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        for field, asked in wrong:
            with pytest.raises(InvalidRequest) as caught:
                [piece async for piece in client.stream(**asked)]
            assert caught.value.field == field
        assert not r.scheduler().submits


async def test_several_answers_at_another_gateway_go_on_there(place: Path) -> None:
    """A client whose gateway is gone asks another one, which passes the stream on from the client's tokens of each answer."""
    body = json.dumps({"prompt": "ab", "n": 2, "max_tokens": 6, "seed": 3}).encode()
    asked = public.AnswersWanted(request="mine", api="completion", body=body)
    async with two_gateways(str(place), has_zeromq=True) as (_, _, scheduler):
        connections = [ZmqConnection(f"ipc://{place}/zeromq-{index}") for index in range(2)]
        try:
            await connections[0].send(asked)
            accepted = await connections[0].receive()
            assert isinstance(accepted, public.Accepted)
            assert accepted.n_answers == 2
            await until(lambda: len(scheduler.running) == 2)
            scheduler.step(3)
            await until(lambda: scheduler.acked == scheduler.sent)
            await connections[1].send(msgspec.structs.replace(asked, have=[1, 2], is_repeated=True))
            got: dict[int, list[int]] = {0: [], 1: []}
            ended = set[int]()
            scheduler.step(3)
            async with asyncio.timeout(DEADLINE_S):
                while len(ended) < 2:
                    match await connections[1].receive():
                        case public.Chunk() as chunk:
                            assert int(chunk.first) == [1, 2][int(chunk.index)] + len(got[int(chunk.index)])
                            got[int(chunk.index)] += chunk.ids.tolist()
                        case public.Finished() as finished:
                            ended.add(int(finished.index))
            seeds = [submit.sampling.seed for submit in scheduler.submits]
            assert [got[0], got[1]] == [oracle([97, 98], 6, seeds[0])[1:], oracle([97, 98], 6, seeds[1])[2:]]
            assert len(scheduler.submits) == 2, "nothing is computed twice"
        finally:
            for connection in connections:
                connection.close()
