"""The events of /v1/responses for an answer whose text is split into channels: an item for each run of one channel. Pure.

What one token makes certain is one event of the stream (`StreamEvents`), with several of OpenAI's events as its parts. The last
part of event n has the `sequence_number` FIRST + 1000 n, so that the number says where the stream goes on; the parts before it
count from the event before. The openings are parts before event 1.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.responses.events import FIRST_OF_SPLIT, NUMBERS_OF_EVENT, ResponseEvents, event_of, last_name
from actors.gateway.http.formats.responses.object import begun_object, response_object
from actors.gateway.http.formats.responses.output import (
    ItemChange,
    ItemKind,
    OutputWalk,
    Step,
    called_with,
    item_json,
    output_id,
    part_json,
)
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.text_model import TextModel

_N_OPENINGS = 2
_STEMS = {
    ItemKind.REASONING: "response.reasoning_text",
    ItemKind.MESSAGE: "response.output_text",
    ItemKind.CALL: "response.function_call_arguments",
    ItemKind.CUSTOM_CALL: "response.custom_tool_call_input",
}
Part = tuple[str, dict[str, Any]]  # the name of one of OpenAI's events, and its fields


class SplitResponseEvents(ResponseEvents):
    """Writes the events of one response, whose items begin and end with the runs of its channels."""

    has_parts = True

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        super().__init__(request, model_name, model)
        self._sequence = request.sequences[0]
        self._walk = OutputWalk(self._sequence, model)
        self._output: list[dict[str, Any]] | None = None  # once the ending was read

    def openings(self) -> list[bytes]:
        """The response without content."""
        begun = begun_object(self._request, self._model_name)
        return [
            event_of("response.created", FIRST_OF_SPLIT + 1, response=begun),
            event_of("response.in_progress", FIRST_OF_SPLIT + 2, response=begun),
        ]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it makes no text certain."""
        return self._event(number + 1, self._walk.of_token(number))

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The text that became certain by the ending, and the end of the last item unless the request has failed."""
        steps = self._walk.of_ending()
        if sequence.ended is not None and not sequence.ended.is_failure:
            steps += self._walk.close()
        self._output = self._walk.output
        return self._event(len(sequence.ids) + 1, steps)

    def last(self, failure: Ended | None) -> list[bytes]:
        """The end of the response."""
        ended = failure or self._sequence.ended
        assert ended is not None, "the request is over"
        number = FIRST_OF_SPLIT + (len(self._sequence.ids) + 2) * NUMBERS_OF_EVENT
        response = response_object(self._request, self._model_name, self._model, self._output)
        return [event_of(last_name(ended), number, response=response)]

    def _event(self, event: int, steps: list[Step]) -> bytes:
        """Event number `event` of the stream, with the parts that these steps need; b"" without any."""
        parts = [part for step in steps for part in self._parts(step)]
        first = FIRST_OF_SPLIT + (event - 1) * NUMBERS_OF_EVENT
        n_before = _N_OPENINGS if event == 1 else 0
        # more parts than numbers share the last one: a client that has read one of these reads some of them again
        numbers = [first + min(n_before + at, NUMBERS_OF_EVENT - 1) for at in range(1, len(parts))]
        numbers.append(first + NUMBERS_OF_EVENT)
        return b"\n".join(event_of(name, number, **fields) for (name, fields), number in zip(parts, numbers, strict=False))

    def _parts(self, step: Step) -> list[Part]:
        item = step.item
        stem, place = _STEMS[item.kind], {"item_id": output_id(self._sequence, item), "output_index": item.index}
        is_call, is_custom = item.kind.is_call, item.kind is ItemKind.CUSTOM_CALL
        within = place if is_call else {**place, "content_index": 0}
        if step.change is ItemChange.MORE and is_custom:
            return []  # the text for the tool is certain when the arguments are whole
        if step.change is ItemChange.MORE:
            logprobs = {"logprobs": step.logprobs} if item.kind is ItemKind.MESSAGE else {}
            return [(stem + ".delta", {**within, **logprobs, "delta": step.text})]
        if step.change is ItemChange.BEGUN:
            begun = item_json(self._sequence, item, is_begun=True)
            added: Part = ("response.output_item.added", {"output_index": item.index, "item": begun})
            part: Part = ("response.content_part.added", {**within, "part": part_json(item, is_begun=True)})
            return [added] if is_call else [added, part]
        done: Part = ("response.output_item.done", {"output_index": item.index, "item": item_json(self._sequence, item)})
        if is_custom:
            text = called_with(item)
            delta: list[Part] = [(stem + ".delta", {**within, "delta": text})] if text else []
            return [*delta, (stem + ".done", {**within, "input": text}), done]
        if is_call:
            return [(stem + ".done", {**within, "name": item.tool.name, "arguments": item.text}), done]
        logprobs = {"logprobs": item.logprobs} if item.kind is ItemKind.MESSAGE else {}
        return [
            (stem + ".done", {**within, **logprobs, "text": item.text}),
            ("response.content_part.done", {**within, "part": part_json(item)}),
            done,
        ]


def response_events(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of the stream of one request."""
    return (ResponseEvents if request.spec.splitting is None else SplitResponseEvents)(request, model_name, model)
