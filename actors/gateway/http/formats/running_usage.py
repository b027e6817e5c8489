"""Streams of OpenAI's format in which every event tells the usage so far: `stream_options.continuous_usage_stats`. Pure."""

from __future__ import annotations

from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.openai_split import chunk_writer
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.text_model import TextModel

_NO_USAGE = b'],"usage":null}\n'  # how each event ends; in no text, whose quotes and newlines are escaped
_USAGE = b'],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n'


def stream_writer(request: Request, model_name: str, model: TextModel) -> StreamWriter:
    """The writer of OpenAI's events for one request."""
    writer = chunk_writer(request, model_name, model)
    return RunningUsage(request, writer) if request.spec.with_running_usage else writer


class RunningUsage(StreamWriter):
    """The events of another writer, each with the tokens of its own sequence so far, as vLLM counts them."""

    def __init__(self, request: Request, writer: StreamWriter) -> None:
        self._request, self._writer = request, writer
        self.content_type, self.has_ids, self.ping = writer.content_type, writer.has_ids, writer.ping

    def openings(self) -> list[bytes]:
        """The openings of the other writer, with a count of 0 tokens."""
        return [self._counted(line, self._request.sequences[0], 0) for line in self._writer.openings()]

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token."""
        return self._counted(self._writer.token(sequence, number), sequence, number + 1)

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The event of an ending."""
        return self._counted(self._writer.ending(sequence), sequence, len(sequence.ids))

    def last(self, failure: Ended | None) -> list[bytes]:
        """The error, or the whole usage."""
        return self._writer.last(failure)

    def _counted(self, line: bytes, sequence: GrowingSequence, n_tokens: int) -> bytes:
        n_prompt = self._request.n_prompt_of(sequence.index)
        return line.replace(_NO_USAGE, _USAGE % (n_prompt, n_tokens, n_prompt + n_tokens))
