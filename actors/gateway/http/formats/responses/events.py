"""The events of a streamed answer of /v1/responses, as OpenAI's Responses API names them. Pure.

Each event has a number, `sequence_number`. The first four come before the first token. After them the number is that of the
event in the stream (`StreamEvents`) plus three, so the numbers jump over tokens that add no text. Those of answers that are
split are above all these (`split.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.gateway.http.formats.format import EVENT_STREAM, PART_BASE, PING, StreamWriter
from actors.gateway.http.formats.responses.object import (
    begun_object,
    item_id,
    message_item,
    message_of,
    response_object,
    status_of,
)
from actors.gateway.http.formats.responses.output import logprobs_of
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.text_model import TextModel

_encode = msgspec.json.Encoder().encode
_N_BEFORE = 4  # events before the first token
FIRST_OF_SPLIT, NUMBERS_OF_EVENT = 100_000_000, 1000  # see `response_split.py`; no other answer has so many tokens
_DELTA = "response.output_text.delta"
# a response that was cancelled has no event of its own in OpenAI's API
_LAST = {"completed": "response.completed", "failed": "response.failed"}


def event_before(sequence_number: int) -> int:
    """Where a client that has the event with this `sequence_number` goes on: the `start` of `StreamEvents`; 0 for the events
    before the first token.
    """
    if sequence_number >= FIRST_OF_SPLIT:
        n_events, n_parts = divmod(sequence_number - FIRST_OF_SPLIT, NUMBERS_OF_EVENT)
        return n_events + n_parts * PART_BASE
    return max(sequence_number - _N_BEFORE + 1, 0)


class ResponseEvents(StreamWriter):
    """Writes the events of one response, which has one message with one part of text."""

    content_type, has_ids, ping = EVENT_STREAM, True, PING

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        self._request, self._model_name, self._model = request, model_name, model
        self._place = {"item_id": item_id(request), "output_index": 0, "content_index": 0}
        self._wants_logprobs = request.spec.sampling.logprobs >= 0
        self._logprobs: list[msgspec.Raw] = []  # of the first tokens; the last events have all of them, four times
        head = {"type": _DELTA, **self._place, "logprobs": []}
        before = b"event: " + _DELTA.encode() + b"\ndata: " + _encode(head)[:-1]
        self._delta = before.replace(b"%", b"%%") + b',"sequence_number":%d,"delta":%b}\n'

    def openings(self) -> list[bytes]:
        """The response, its message and the part of it, all without content."""
        begun = begun_object(self._request, self._model_name)
        item = message_of(self._request, "in_progress", [])
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        return [
            event_of("response.created", 0, response=begun),
            event_of("response.in_progress", 1, response=begun),
            event_of("response.output_item.added", 2, output_index=0, item=item),
            event_of("response.content_part.added", 3, **self._place, part=part),
        ]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it adds no text and its log-probability is not asked for."""
        text = sequence.texts[number]
        if self._wants_logprobs:
            logprobs = logprobs_of(sequence, number, number + 1, self._model)
            if number == len(self._logprobs):
                self._logprobs += logprobs
            return event_of(_DELTA, _N_BEFORE + number, **self._place, logprobs=logprobs, delta=text)
        return self._delta % (_N_BEFORE + number, _encode(text)) if text else b""

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The text that became certain by the ending."""
        return self._delta % (_N_BEFORE + len(sequence.ids), _encode(sequence.tail)) if sequence.tail else b""

    def last(self, failure: Ended | None) -> list[bytes]:
        """The ends of the part, the message and the response; of the response alone if it has failed."""
        request, sequence = self._request, self._request.sequences[0]
        ended, first = failure or sequence.ended, _N_BEFORE + len(sequence.ids) + 1
        assert ended is not None, "the request is over"
        item = message_item(request, self._model, self._logprobs)
        (part,) = item["content"]
        response = response_object(request, self._model_name, self._model, [item])
        name = last_name(ended)
        if failure is not None:
            return [event_of(name, first, response=response)]
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            event_of("response.output_text.done", first, **self._place, **text),
            event_of("response.content_part.done", first + 1, **self._place, part=part),
            event_of("response.output_item.done", first + 2, output_index=0, item=item),
            event_of(name, first + 3, response=response),
        ]


def last_name(ended: Ended) -> str:
    """The name of the last event of a response with this ending."""
    return _LAST.get(status_of(ended), "response.incomplete")


def event_of(kind: str, number: int, **fields: Any) -> bytes:
    """One event as its bytes."""
    data = {"type": kind, **fields, "sequence_number": number}
    return b"event: " + kind.encode() + b"\ndata: " + _encode(data) + b"\n"
