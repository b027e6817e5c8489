"""OpenAI's events of a chat whose text is split into channels: a delta may have reasoning beside its content. Pure."""

from __future__ import annotations

import msgspec

from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.openai_chunks import FINISH, ChunkWriter, fields_of, finish_reason
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.split_text import SplitText
from actors.gateway.text.pieces import TextPiece
from actors.gateway.text.tokenizer import TextModel

_encode = msgspec.json.Encoder().encode


class SplitChunkWriter(ChunkWriter):
    """Writes server-sent events, as `ChunkWriter` does; the delta of a token has each channel in a field of its own."""

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        super().__init__(request, model_name, model)
        self._splits = [SplitText(sequence) for sequence in request.sequences]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it makes no text certain and its log-probability is not asked for."""
        pieces = self._splits[sequence.index].of_token(number)
        if not pieces and not self._wants_logprobs:
            return b""
        logprobs = self._logprobs(sequence, number) if self._wants_logprobs else b"null"
        return self._event_with(sequence.index, _delta(pieces), logprobs, b"null")

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The event of an ending, with the text that became certain by it; b"" for a failure without such a text."""
        ended, pieces = sequence.ended, self._splits[sequence.index].of_ending()
        assert ended is not None
        if ended.is_failure:
            return self._event_with(sequence.index, _delta(pieces), b"null", b"null") if pieces else b""
        return self._event_with(sequence.index, _delta(pieces), b"null", FINISH[finish_reason(ended)])


def chunk_writer(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of one request."""
    return (ChunkWriter if request.order.splitting is None else SplitChunkWriter)(request, model_name, model)


def _delta(pieces: list[TextPiece]) -> bytes:
    return b'"delta":' + _encode(fields_of(pieces))
