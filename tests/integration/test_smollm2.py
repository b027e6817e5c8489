"""The real model behind the real server: its greedy tokens are those of `transformers` on the same weights.

Alone and all at once, on one rank, on two and on two stages, with prefix reuse, with speculation and without; and the three
ways to talk to the server give one answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gpu_workers.models.resolve import resolve_model
from messages.client import AsyncClient, Client
from messages.ids import role_of
from tests.support.answers.client_libraries import openai
from tests.support.fuzz.fuzz_case import check_inventory
from tests.support.prompts import CHAT, PLAIN
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
N_TOKENS = 24
N_FEW = 8
_MESSAGE = "<|im_start|>user\n{}<|im_end|>\n"


# by prompt: what `generate()` of transformers says with everything default, in float32 and one prompt at a time
_RECORDED = Path(__file__).with_name("smollm2_greedy.json")


@pytest.fixture(scope="module")
def reference() -> dict[str, list[int]]:
    """Greedy tokens of transformers by prompt, end of text included."""
    return json.loads(_RECORDED.read_text(encoding="utf-8"))


@pytest.mark.long
def test_the_recorded_tokens_are_those_of_transformers(reference: dict[str, list[int]]) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = resolve_model("").path
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    answers = {}
    for prompt in (*PLAIN, *CHAT):
        if prompt in CHAT:
            turns = [{"role": "user", "content": prompt}]
            text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        else:
            ids = tokenizer(prompt, return_tensors="pt").input_ids
        options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
        made = model.generate(ids, do_sample=False, max_new_tokens=N_TOKENS, **options)
        answers[prompt] = made[0, ids.shape[1] :].tolist()
    assert answers == reference


_KINDS = {"one rank": (), "two ranks": ("--tp", "2"), "two stages": ("--pp", "2"), "no speculation": ("--no-speculation",)}


def on(*kinds: str) -> pytest.MarkDecorator:
    """A test on these kinds of servers; on all others it is a long one."""
    params = [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.long) for kind in _KINDS]
    return pytest.mark.parametrize("server", params, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    patient = [part for name in ("suspended_s", "frozen_worker_s") for part in ("--set", f"supervisor.{name}=60")]
    with real_server("--dtype", "float32", *patient, *_KINDS[request.param]) as server:
        yield server


# of gloo, for each rank: stages have one more for hidden states, and one for the ids that go back to the first stage
N_GROUPS = {"two ranks": 1, "two stages": 3}

# what a gateway and a sampler do with options is the same on every gang
ONE_RANK = pytest.mark.parametrize("server", ["one rank"], indirect=True, scope="module")


async def answer(client: AsyncClient, prompt: str, n_tokens: int = N_TOKENS) -> list[int]:
    options = {"max_tokens": n_tokens, "temperature": 0.0}
    if prompt in CHAT:
        return list((await client.chat([{"role": "user", "content": prompt}], **options)).tokens)
    return list((await client.generate(prompt, **options)).tokens)


@on("one rank", "two ranks", "two stages")
def test_it_listens_nowhere_else(server: RealServer, request: pytest.FixtureRequest) -> None:
    """Each of several ranks on CPUs has a port of gloo for each of its groups; SECURITY.md says what that means."""
    with Client(server.zeromq) as client:
        client.generate("Nobody else", max_tokens=1)  # so that a journal is there
    children = server.wait_serving().children
    n_ranks = sum(role_of(child.name) == "worker" for child in children)
    roles = check_inventory(server, n_ranks * N_GROUPS.get(request.node.callspec.params["server"], 0))
    assert roles == {role_of(child.name) for child in children} | {"supervisor", "zeromq"}


async def wait_until_active(client: AsyncClient, n: int) -> None:
    """Until the gateway holds `n` requests without an ending. Each question is one round trip."""
    async with asyncio.timeout(60.0):
        while (await client.stats())["active"] < n:
            pass


@pytest.mark.parametrize("server", ["two ranks", "two stages"], indirect=True, scope="module")
async def test_the_first_greedy_tokens_of_a_third_of_the_prompts(server: RealServer, reference: dict[str, list[int]]) -> None:
    """What several ranks can do wrong, they do wrong at once; `make test-long` asks them all that one rank is asked."""
    asked = [*PLAIN[::3], *CHAT[::3]]
    async with AsyncClient(server.zeromq) as client:
        together = await asyncio.gather(*(answer(client, prompt, N_FEW) for prompt in asked))
        assert dict(zip(asked, together, strict=True)) == {prompt: reference[prompt][:N_FEW] for prompt in asked}
        assert await answer(client, CHAT[-1], N_FEW) == reference[CHAT[-1]][:N_FEW]
        assert await answer(client, CHAT[-1], N_FEW) == reference[CHAT[-1]][:N_FEW], "its prefix is cached now, of whole pages"


@on("one rank")
async def test_greedy_tokens_equal_transformers(server: RealServer, reference: dict[str, list[int]]) -> None:
    async with AsyncClient(server.zeromq) as client:
        together = await asyncio.gather(*(answer(client, prompt) for prompt in reference))
        assert dict(zip(reference, together, strict=True)) == reference
        again = await asyncio.gather(*(answer(client, prompt) for prompt in CHAT))  # prefixes are cached now, of whole pages
        assert again == [reference[prompt] for prompt in CHAT]
        for prompt in (PLAIN[0], CHAT[0]):
            assert await answer(client, prompt) == reference[prompt]


@ONE_RANK
def test_the_three_ways_give_one_answer(server: RealServer) -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as api:
        model = api.models.list().data[0].id
        options: dict[str, Any] = {"model": model, "messages": [question], "temperature": 0, "max_tokens": N_TOKENS}
        whole = api.chat.completions.create(**options).choices[0].message.content
        chunks = list(api.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    with Client(server.zeromq) as client:
        native = client.chat([question], max_tokens=N_TOKENS, temperature=0.0)
    assert whole == streamed == native.text
    assert "Paris" in native.text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(native.tokens)


@ONE_RANK
async def test_min_p_of_one_leaves_the_greedy_token(server: RealServer, reference: dict[str, list[int]]) -> None:
    prompt = PLAIN[0]
    options: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 1.5, "min_p": 1.0, "seed": 7}
    async with AsyncClient(server.zeromq) as client, httpx.AsyncClient(timeout=60.0) as http:
        native = await client.generate(prompt, **options)
        answer = await http.post(f"{server.url}/v1/completions", json={"prompt": prompt, **options})
    assert native.tokens == reference[prompt]
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"] == native.text


@ONE_RANK
def test_openai_s_client_biases_and_bans_tokens(server: RealServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as api:
        options: dict[str, Any] = {"model": "smollm2", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 4}
        plain = api.completions.create(**options).choices[0].text
        biased = api.completions.create(**options, logit_bias={"7042": -100}, seed=3).choices[0].text  # " Paris"
        banned = api.completions.create(**options, extra_body={"bad_words": ["Paris"]}).choices[0].text
        options |= {"temperature": 1.0}
        best = api.completions.create(**options, best_of=3, n=2, seed=3, logprobs=0)
    assert plain.startswith(" Paris")
    assert "Paris" not in biased + banned
    means = [np.mean(choice.logprobs.token_logprobs) for choice in best.choices if choice.logprobs]  # pyright: ignore
    assert len(means) == 2
    assert means[0] >= means[1]


@ONE_RANK
async def test_a_stop_token_does_not_come_before_min_tokens(server: RealServer, reference: dict[str, list[int]]) -> None:
    prompt = PLAIN[0]
    stop = reference[prompt][2]
    options: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0.0, "stop_tokens": [stop]}
    async with AsyncClient(server.zeromq) as client:
        early = await client.generate(prompt, **options)
        late = await client.generate(prompt, min_tokens=9, **options)
    assert early.tokens == reference[prompt][: reference[prompt].index(stop) + 1]
    assert len(late.tokens) >= 9
    assert stop not in late.tokens[:9]


async def kill_amid_streams(server: RealServer, name: str) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    prompts = [f"{prompt} {n}" for n in range(2) for prompt in (*PLAIN, *CHAT[:4])]
    async with AsyncClient(server.zeromq) as client:
        calm = await asyncio.gather(*(client.generate(prompt, **options) for prompt in prompts))
        work = [asyncio.ensure_future(client.generate(prompt, **options)) for prompt in prompts]
        for _ in range(3):  # three calls of the same server: about as long as the first steps of the streams take
            await client.stats()
        incarnation = await asyncio.to_thread(server.kill, name)
        assert not any(task.done() for task in work), "a stream is over already: nothing would be killed"
        disturbed = await asyncio.gather(*work)
    assert [answer.tokens for answer in disturbed] == [answer.tokens for answer in calm]
    await asyncio.to_thread(server.wait_new_incarnation, name, incarnation)


@on("one rank")
async def test_thirty_two_streams_end_as_without_the_death_of_their_gang(server: RealServer) -> None:
    await kill_amid_streams(server, "worker/0.0")


@ONE_RANK
@pytest.mark.long
@pytest.mark.parametrize("name", ["scheduler/0", "gateway/0"])
async def test_thirty_two_streams_end_as_without_the_death_of_an_actor(server: RealServer, name: str) -> None:
    await kill_amid_streams(server, name)


async def rows_per_step(http: httpx.AsyncClient, server: RealServer) -> dict[float, float]:
    """How many steps had at most so many rows, as the scheduler has last reported it."""
    text = (await http.get(f"{server.url}/metrics")).text
    pattern = r'tardigrade_scheduler_batch_rows_bucket{[^}]*le="([\d.]+)"[^}]*} ([\d.e+]+)'
    return {float(bound): float(count) for bound, count in re.findall(pattern, text)}


@on("one rank", "two stages")
async def test_sixty_four_at_once_run_together(server: RealServer, request: pytest.FixtureRequest) -> None:
    fewest = (
        16.0 if request.node.callspec.params["server"] == "two stages" else 32.0
    )  # a step of stages has half of the sequences
    options: dict[str, Any] = {"max_tokens": N_FEW, "temperature": 1.0, "seed": 5, "ignore_eos": True}
    async with AsyncClient(server.zeromq) as client:
        await asyncio.to_thread(server.kill, "worker/0.0", signal.SIGSTOP)  # nobody is done before the last one has come
        try:
            work = [asyncio.ensure_future(client.generate(f"{n} is a number and", **options)) for n in range(64)]
            await wait_until_active(client, 64)
        finally:
            await asyncio.to_thread(server.kill, "worker/0.0", signal.SIGCONT)
        answers = await asyncio.gather(*work)
        assert all(len(a.tokens) == N_FEW for a in answers)
        alone = await client.generate("7 is a number and", **options)
        assert alone.tokens == answers[7].tokens  # noise by seed and position, not by batch
    async with httpx.AsyncClient() as http, asyncio.timeout(60.0):
        per_bucket = await rows_per_step(http, server)
        while per_bucket[512.0] == per_bucket[fewest]:  # no larger step yet: metrics come every two seconds
            per_bucket = await rows_per_step(http, server)
    assert np.isfinite(list(per_bucket.values())).all()
