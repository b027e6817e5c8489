"""The messages to a ZeroMQ client about a request: a pure function of the request and its tokens, from any token on."""

from __future__ import annotations

from actors.gateway.requests.reader import Delta
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.split_text import SplitText
from actors.gateway.requests.tool_calls import call_id
from actors.gateway.text.pieces import Channel, TextPiece
from messages.public import AnswerPart, Chunk, Finished
from messages.wire.arrays import EMPTY_I32, int32s
from messages.wire.message import Message

_GROWING = (Channel.CONTENT, Channel.REASONING, Channel.ARGUMENTS)


class AnswerWriter:
    """Makes the messages about new tokens and endings of one request, whose answers are read from any token on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        is_split = request.spec.splitting is not None
        self._splits = [SplitText(sequence) for sequence in request.sequences] if is_split else []

    def messages(self, delta: Delta) -> list[Message]:
        """The messages about what is new of one answer."""
        messages: list[Message] = []
        spec, index, request_id = self._request.spec, delta.index, self._request.spec.request
        if delta.stop > delta.first or not spec.has_answer:
            messages.append(self._chunk(delta))
        if delta.ended is None:
            return messages
        parts = self._last_parts(delta.sequence)
        if delta.tail or parts:
            text = "" if self._splits else delta.tail
            messages.append(Chunk(request=request_id, first=delta.stop, ids=EMPTY_I32, text=text, index=index, parts=parts))
        ended = delta.ended
        finished = Finished(
            request=request_id,
            reason=ended.reason if spec.has_answer or ended.is_failure else "length",
            n_prompt=self._request.n_prompt_of(delta.sequence.index),
            n_generated=delta.stop,
            n_cached=ended.n_cached,
            code=ended.code,
            detail=ended.detail,
            index=index,
        )
        return [*messages, finished]

    def _chunk(self, delta: Delta) -> Chunk:
        spec, sequence = self._request.spec, delta.sequence
        text = "" if self._splits else delta.text
        prompt_logprobs = None
        if not delta.first:
            prompt_logprobs = sequence.logprobs.prompt
            if spec.echo:
                text = spec.echo[sequence.index // spec.n] + text
        return Chunk(
            request=spec.request,
            first=delta.first,
            ids=int32s(delta.ids),
            text=text,
            logprobs=sequence.logprobs.of(delta.first, delta.stop) if spec.shows_logprobs and spec.has_answer else None,
            prompt_logprobs=prompt_logprobs,
            index=delta.index,
            parts=self._parts(sequence, delta.first, delta.stop) if self._splits else [],
        )

    def _parts(self, sequence: GrowingSequence, first: int, stop: int) -> list[AnswerPart]:
        """The parts that tokens `first` to `stop` - 1 make certain."""
        split, parts = self._splits[sequence.index], list[AnswerPart]()
        for number in range(first, stop):
            _add(parts, split.of_token(number), split, sequence)
        return parts

    def _last_parts(self, sequence: GrowingSequence) -> list[AnswerPart]:
        """The parts that its ending makes certain."""
        parts = list[AnswerPart]()
        if self._splits:
            split = self._splits[sequence.index]
            _add(parts, split.of_ending(), split, sequence)
        return parts


def _add(parts: list[AnswerPart], pieces: list[TextPiece], split: SplitText, sequence: GrowingSequence) -> None:
    """Add the newest pieces of a split text; one that goes on with the last part is joined to it."""
    number = split.n_calls - sum(channel is Channel.CALL for channel, _ in pieces)
    for channel, text in pieces:
        if channel is Channel.CALL:
            parts.append(AnswerPart(channel=channel, text=text, call=call_id(sequence, number)))
            number += 1
        elif parts and parts[-1].channel is channel and channel in _GROWING:
            parts[-1] = AnswerPart(channel=channel, text=parts[-1].text + text)
        else:
            parts.append(AnswerPart(channel=channel, text=text))
