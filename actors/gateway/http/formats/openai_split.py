"""OpenAI's events of a chat whose text is split into channels: a delta may have more than content. Pure."""

from __future__ import annotations

import msgspec

from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.http.formats.openai_message import FINISH, delta_of, finish_with_calls
from actors.gateway.http.formats.prompt_logprobs import token_ids
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.split_text import SplitText
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.pieces import TextPiece

_encode = msgspec.json.Encoder().encode


class SplitChunkWriter(ChunkWriter):
    """Writes server-sent events, as `ChunkWriter` does; the delta of a token has each channel in a field of its own."""

    def __init__(self, request: Request, model_name: str, model: TextModel) -> None:
        super().__init__(request, model_name, model)
        splitting = request.spec.splitting
        if splitting is not None and splitting.tools is not None and splitting.tools.begins_with_null:
            self.first_content = b"null"  # as OpenAI's streams have it where calls follow, and no content
        self._is_plain = False  # what a token shows depends on those before it
        self._splits = [SplitText(sequence) for sequence in request.sequences]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it makes no text certain and its log-probability is not asked for."""
        pieces = self._splits[sequence.index].of_token(number)
        with_ids = self._request.spec.with_token_ids
        if not (pieces or self._wants_logprobs or with_ids):
            return b""
        logprobs = self._logprobs(sequence, number) if self._wants_logprobs else b"null"
        ids = token_ids(sequence, slice(number, number + 1), with_prompt=False) if with_ids else b""
        return self._event_with(sequence.index, self._delta(sequence, pieces), logprobs, b"null", ids)

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The event of an ending, with the text that became certain by it; b"" for a failure without such a text."""
        split = self._splits[sequence.index]
        ended, pieces = sequence.ended, split.of_ending()
        assert ended is not None
        if ended.is_failure:
            return self._event_with(sequence.index, self._delta(sequence, pieces), b"null", b"null") if pieces else b""
        finish = FINISH[finish_with_calls(ended, split.n_whole_calls, sequence.spec)]
        return self._event_with(sequence.index, self._delta(sequence, pieces), b"null", finish, self.ids_of_ending)

    def _delta(self, sequence: GrowingSequence, pieces: list[TextPiece]) -> bytes:
        return b'"delta":' + _encode(delta_of(sequence, pieces, self._splits[sequence.index].n_calls))


def chunk_writer(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of the stream of one request."""
    return (ChunkWriter if request.spec.splitting is None else SplitChunkWriter)(request, model_name, model)
