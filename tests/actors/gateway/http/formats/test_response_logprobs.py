"""Responses with log probabilities: each is made into JSON once, however many events repeat it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_logprobs import SPAN_TOKENS
from actors.gateway.http.formats.registry import format_of
from actors.gateway.http.formats.responses.object import told_output
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import ResponseTerms
from actors.gateway.text.channels import Splitting
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sampling import Sampling
from tests.support.answers.written_answer import THINK, written

N, WIDTH = 3 * SPAN_TOKENS + 5, 2
SPLITTINGS = [None, THINK]


class CountedText(HashChainText):
    """Counts how often the text of a token alone is asked for."""

    n_asked = 0

    def text_of(self, token: int) -> tuple[str, bytes]:
        self.n_asked += 1
        return super().text_of(token)


def _request(splitting: Splitting | None) -> Request:
    request = written([f"w{i} " for i in range(N)], "responses", splitting, response=ResponseTerms(items=b"[]", shown=b"{}"))
    sequence = request.sequences[0]
    request.spec = sequence.spec = msgspec.structs.replace(request.spec, sampling=Sampling(logprobs=WIDTH))
    sequence.wants_logprobs = True
    tops = np.zeros(N * WIDTH, "<f4")
    chosen = -np.arange(N, dtype="<f4")
    sequence.logprobs.add(TokenLogprobs(chosen=chosen, width=WIDTH, top_ids=np.arange(N * WIDTH, dtype="<i4"), top=tops))
    return request


def _content(response: dict[str, Any]) -> list[dict[str, Any]]:
    return response["output"][0]["content"][0]["logprobs"]


def _data(event: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in event.splitlines() if line.startswith(b"data: ")]


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_a_stream_makes_each_log_probability_once(splitting: Splitting | None) -> None:
    request, model = _request(splitting), CountedText()
    request.n_open = 1  # it still runs when its stream begins
    stream = StreamEvents(request, format_of("responses").stream(request, "model", model))
    events = stream.take()
    request.n_open = 0
    events += stream.take()
    assert model.n_asked == N * (1 + WIDTH)
    data = [one for event in events for one in _data(event)]
    logprobs = _content(data[-1]["response"])
    assert [one["logprob"] for one in logprobs] == [-i for i in range(N)]
    assert [one for event in data if event["type"].endswith(".delta") for one in event["logprobs"]] == logprobs
    done = [event for event in data if event["type"] == "response.output_text.done"]
    assert [event["logprobs"] for event in done] == [logprobs]


@pytest.mark.parametrize("splitting", SPLITTINGS)
@pytest.mark.parametrize("start", [1, SPAN_TOKENS, N + 1])
def test_a_stream_that_goes_on_ends_with_all_log_probabilities(splitting: Splitting | None, start: int) -> None:
    request, model = _request(splitting), HashChainText()
    whole = StreamEvents(request, format_of("responses").stream(request, "model", model)).take()
    rest = StreamEvents(request, format_of("responses").stream(request, "model", model), start).take()
    assert rest[-1] == whole[-1]
    assert len(_content(_data(rest[-1])[-1]["response"])) == N


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_a_whole_body_lets_others_have_turns(splitting: Splitting | None) -> None:
    request, model = _request(splitting), CountedText()
    pieces = list(format_of("responses").whole(request, "model", model))
    assert pieces.count(b"") >= N // SPAN_TOKENS
    assert model.n_asked == N * (1 + WIDTH)
    assert len(_content(json.loads(b"".join(pieces)))) == N


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_a_conversation_keeps_no_log_probabilities(splitting: Splitting | None) -> None:
    request, model = _request(splitting), CountedText()
    (item,) = told_output(request, model)
    (part,) = item["content"]
    assert part["logprobs"] == []
    assert part["text"] == "".join(f"w{i} " for i in range(N))
    assert not model.n_asked
