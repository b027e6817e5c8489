"""Anthropic's events of a message whose text is split into channels: a block for each run of one channel. Pure."""

from __future__ import annotations

from typing import Any

from actors.gateway.http.formats.anthropic_events import MessageEvents, event_of, signature_of, tool_block
from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.split_text import SplitText
from actors.gateway.requests.tool_calls import ToolCall
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.pieces import Channel, TextPiece

_DELTAS = {
    Channel.REASONING: ("thinking_delta", "thinking"),
    Channel.CONTENT: ("text_delta", "text"),
    Channel.CALL: ("input_json_delta", "partial_json"),
}
_BLOCKS = {**{channel: channel for channel in _DELTAS}, Channel.ARGUMENTS: Channel.CALL, Channel.NO_CALL: Channel.CONTENT}


class SplitMessageEvents(MessageEvents):
    """Writes the events of one message, whose blocks begin and end with the runs of its channels."""

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        super().__init__(request, model_name, model)
        self._split = SplitText(request.sequences[0])
        self._n_blocks = 0  # that have begun
        self._open: Channel | None = None  # the channel of the block that has not ended

    def openings(self) -> list[bytes]:
        """The message without content."""
        return super().openings()[:1]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The events of one token; b"" if it makes no text certain."""
        self._pass(number)
        return b"\n".join(self._events(self._split.of_token(number)))

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The text that became certain by the ending, and the end of the last block unless the request has failed."""
        self._pass(len(sequence.texts))
        events = self._events(self._split.of_ending())
        if sequence.ended is None or sequence.ended.is_failure:
            return b"\n".join(events)
        if not self._n_blocks:
            events += self._begin(Channel.CONTENT)
        return b"\n".join(events + self._end())

    def _pass(self, number: int) -> None:
        """The client has the events of the tokens before `number`: which blocks they began is all that matters."""
        if self._split.n_read < number:
            self._events(self._split.pass_to(number))

    def _events(self, pieces: list[TextPiece]) -> list[bytes]:
        events: list[bytes] = []
        number = self._split.n_calls - sum(channel is Channel.CALL for channel, _ in pieces)
        for channel, text in pieces:
            if channel is Channel.CALL:
                block = tool_block(self._request.sequences[0], ToolCall(number, text))
                events += self._end() + self._begin(channel, block)
                number += 1
                continue
            block_channel = _BLOCKS[channel]
            if block_channel is not self._open:
                events += self._end() + self._begin(block_channel)
            kind, field = _DELTAS[block_channel]
            events.append(self._delta({"type": kind, field: text}))
        return events

    def _begin(self, channel: Channel, block: dict[str, Any] | None = None) -> list[bytes]:
        self._open, self._n_blocks = channel, self._n_blocks + 1
        if block is None:
            is_thinking = channel is Channel.REASONING
            block = {"type": "thinking", "thinking": "", "signature": ""} if is_thinking else {"type": "text", "text": ""}
        return [event_of({"type": "content_block_start", "index": self._n_blocks - 1, "content_block": block})]

    def _end(self) -> list[bytes]:
        """The end of the open block, if there is one."""
        ended, self._open = self._open, None
        if ended is None:
            return []
        stop = event_of({"type": "content_block_stop", "index": self._n_blocks - 1})
        if ended is not Channel.REASONING:
            return [stop]
        return [self._delta({"type": "signature_delta", "signature": signature_of(self._request)}), stop]

    def _delta(self, delta: dict[str, str]) -> bytes:
        return event_of({"type": "content_block_delta", "index": self._n_blocks - 1, "delta": delta})


def message_events(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of the stream of one request."""
    return (MessageEvents if request.spec.splitting is None else SplitMessageEvents)(request, model_name, model)
