"""Wrong options are refused on the caller's side, by name, with what came; right ones become the request that was meant."""

from __future__ import annotations

import math
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pytest

from actors.gateway.bodies.schema import ChatBody, CompletionBody
from messages.client import AsyncClient, Client
from messages.client.options import AnswerOptions, Options, deadline_of, endpoint_of, endpoints_of, request_of
from messages.errors import ConfigError, InvalidRequest
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.sampling import Sampling, SamplingOptions
from messages.generation.terms import SERVER_TERMS, Terms, TermsOptions
from messages.public import AnswersWanted
from messages.run_dir import run_dir_of, zeromq_endpoint

LONG = "x" * 300


def request(prompt: Any = "Hello", tokens: Any = None, messages: Any = None, **options: Any) -> AnswersWanted:
    return request_of(prompt, tokens, messages, options)


def body(prompt: Any = "Hello", tokens: Any = None, messages: Any = None, **options: Any) -> dict[str, Any]:
    """The fields of the body of a call, but for its prompt."""
    fields = msgspec.json.decode(request(prompt, tokens, messages, **options).body)
    return {name: value for name, value in fields.items() if name != "prompt"}


@pytest.mark.parametrize(
    ("options", "field", "got"),
    [
        ({"max_token": 4}, "max_token", "max_token; did you mean max_tokens?"),
        ({"max_tokens": -1}, "max_tokens", "-1"),
        ({"max_tokens": "4"}, "max_tokens", "'4'"),
        ({"temperature": "hot"}, "temperature", "'hot'"),
        ({"temperature": -1.0}, "temperature", "-1.0"),
        ({"temperature": math.nan}, "temperature", "nan"),
        ({"logprobs": True}, "logprobs", "True"),
        ({"min_p": 1.5}, "min_p", "1.5"),
        ({"seed": -3}, "seed", "-3"),
        ({"stop": 5}, "stop", "5"),
        ({"stop": ["\ud800"]}, "stop", "\\ud800"),
        ({"stop_tokens": [1.5]}, "stop_tokens", "[1.5]"),
        ({"model": None}, "model", "None"),
        ({"request": ""}, "request", "''"),
        ({"request": LONG}, "request", "xxx"),
        ({"request": "\ud800"}, "request", "\\ud800"),
        ({"deadline_s": "soon"}, "deadline_s", "'soon'"),
        ({"deadline_s": -1}, "deadline_s", "-1"),
        ({"deadline_s": math.nan}, "deadline_s", "nan"),
        ({"sampling": None}, "sampling", "None"),
        ({"sampling": Sampling(), "top_k": 3}, "sampling", "top_k"),
        ({"sampling": Sampling(top_p=2.0)}, "sampling.top_p", "2.0"),
        ({"prompt": None}, "prompt", "0"),
        ({"tokens": [1]}, "prompt", "2"),
        ({"prompt": b"abc"}, "prompt", "b'abc'"),
        ({"prompt": 5}, "prompt", "5"),
        ({"prompt": []}, "prompt", "none"),
        ({"prompt": [1.5, 2]}, "prompt", "[1.5, 2]"),
        ({"prompt": [[1, 2]]}, "prompt", "[[1, 2]]"),
        ({"prompt": [[1], [2, 3]]}, "prompt", "[[1], [2, 3]]"),
        ({"prompt": [True]}, "prompt", "[True]"),
        ({"prompt": "a\ud800"}, "prompt", "'\\ud800' at character 1"),
        ({"prompt": "é" * 9_000_000}, "prompt", "18000000"),
        ({"prompt": None, "tokens": "abc"}, "tokens", "'abc'"),
        ({"prompt": None, "tokens": [2**40]}, "tokens", "1099511627776"),
        ({"prompt": None, "tokens": [2**70]}, "tokens", "[1180591620717411303424]"),
        ({"prompt": None, "tokens": np.ones(4_194_304, "<i4")}, "tokens", "4194304"),
        ({"prompt": None, "messages": "hi"}, "messages", "'hi'"),
        ({"prompt": None, "messages": [{"role": "user"}]}, "messages[0]", "{'role': 'user'}"),
        ({"prompt": None, "messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content", "['x']"),
        ({"prompt": None, "messages": [{"role": "user", "content": "x" * 8_000_000}] * 3}, "messages", "24000000"),
        ({"prompt": None, "messages": [{"role": "user", "content": "a\ud800"}]}, "messages[0].content", "'\\ud800'"),
        ({"prompt": "\n" * 9_000_000}, "prompt", "18000013"),
        ({"tools": {}}, "tools", "{}"),
        ({"tools": [{"type": object()}]}, "prompt", "TypeError"),
        ({"n": 0}, "n", "0"),
        ({"grammar": Grammar(kind=GrammarKind.CHOICE, text="a")}, "grammar", "'a'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], field: str, got: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request(**options)
    assert caught.value.field == field
    text = str(caught.value)
    assert text.startswith(f"{field}: expected ")
    assert got in text.partition("got ")[2]
    assert len(text) < 400


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_tokens": "x"}, "max_tokens: expected an integer or none, got 'x'"),
        ({"temperature": "hot"}, "temperature: expected a number, got 'hot'"),
        ({"ignore_eos": 1}, "ignore_eos: expected true or false, got 1"),
        ({"temperature": -1}, "temperature: expected a number >= 0.0, got -1"),
    ],
)
def test_types_are_told_in_words(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request(**options)
    assert str(caught.value) == said


def test_what_callers_have_at_hand_is_taken() -> None:
    assert body(stop="end") == {"stop": ["end"]}
    assert body(stop=("a", "b"), max_tokens=np.int64(7)) == {"stop": ["a", "b"], "max_tokens": 7}
    assert body(max_tokens=None, temperature=1) == {"temperature": 1.0}
    for tokens in ([1, 2], (1, 2), range(1, 3), iter([1, 2]), np.array([1, 2], "<i8"), np.array([1, 2], "u1")):
        assert request(None, tokens).tokens.tolist() == [1, 2]
    assert request([1, 2]).tokens.dtype == "<i4"
    messages = [{"role": "user", "content": "Hi", "name": "me"}]
    assert body(None, messages=tuple(messages)) == {"messages": messages}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    assert body(None, messages=[called, {"role": "tool", "content": [{"type": "text", "text": "x"}]}])["messages"][0] == called


def test_options_are_fields_of_the_http_api() -> None:
    """Those with another name or form become what they mean there, and what is not given is not sent."""
    sampling = Sampling(temperature=0.5, seed=3)
    told = body(sampling=sampling)
    assert "logprobs" not in told
    assert msgspec.convert(told, Sampling) == sampling, "no default of the server takes the place of one"
    assert body(stop_tokens=[5]) == {"stop_token_ids": [5]}
    assert body(logprobs=-1, prompt_logprobs=-1, allowed_token_ids=None) == {}
    assert body(logprobs=2) == {"logprobs": 2}
    chat = body(None, messages=[{"role": "user", "content": "Hi"}], logprobs=2)
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 2)
    assert body(grammar=Grammar(kind=GrammarKind.REGEX, text="a+")) == {"structured_outputs": {"regex": "a+"}}
    assert body(grammar=Grammar(kind=GrammarKind.CHOICE, text='["a"]')) == {"structured_outputs": {"choice": ["a"]}}
    assert request(trace_id=b"t" * 16).trace_id == b"t" * 16
    assert AnswerOptions.__annotations__.keys() <= {*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__}


def test_every_term_that_clients_may_set_is_an_option_of_every_door() -> None:
    assert TermsOptions.__annotations__.keys() == set(Terms.__struct_fields__) - SERVER_TERMS
    assert body(priority=-5, speculation=False) == {"priority": -5, "speculation": False}
    assert body(max_tokens=None) == body(deadline_s=None) == body(deadline_s=0) == {}
    assert body(deadline_s=2) == {"deadline_s": 2.0}


def test_deadlines() -> None:
    assert deadline_of({}) == 600.0
    assert deadline_of({"deadline_s": None}) is None
    assert deadline_of({"deadline_s": 0}) == 0.0


def test_where_the_server_is() -> None:
    assert endpoint_of(None, 8000) == endpoint_of("", 8000) == zeromq_endpoint(run_dir_of(8000))
    assert endpoint_of("tcp://127.0.0.1:5555", 8000) == "tcp://127.0.0.1:5555"
    for endpoint in ("localhost:8000", "http://localhost:8000", 8000):
        with pytest.raises(ConfigError, match=r"endpoint: expected ipc://.*, got .*8000"):
            endpoint_of(endpoint, 8000)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigError, match=r"endpoint: expected ipc://.*, got .*8000"):
            endpoints_of(endpoint, 8000)  # pyright: ignore[reportArgumentType]
    for port in (-1, 65_536, "8000", True):
        with pytest.raises(ConfigError, match="port: expected a whole number from 0 to 65535, got"):
            endpoint_of(None, port)  # pyright: ignore[reportArgumentType]


def test_the_options_of_sampling_are_its_fields() -> None:
    assert get_type_hints(SamplingOptions) == get_type_hints(Sampling)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_docstring_of_generate_names_every_option(kind: type[Client] | type[AsyncClient]) -> None:
    words = set((kind.generate.__doc__ or "").replace("`", " ").replace(",", " ").replace(";", " ").replace(".", " ").split())
    assert Options.__annotations__.keys() - words == set()
