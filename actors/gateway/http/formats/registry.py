"""Which API shows its answers in which format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from actors.gateway.http.errors import ErrorBody, anthropic_error, error_body, ollama_error
from actors.gateway.http.formats.anthropic_events import message_body
from actors.gateway.http.formats.anthropic_split import message_events
from actors.gateway.http.formats.format import StreamWriter
from actors.gateway.http.formats.ollama_lines import line_writer, ollama_body
from actors.gateway.http.formats.openai_chunks import whole_body
from actors.gateway.http.formats.responses.object import response_body
from actors.gateway.http.formats.responses.split import response_events
from actors.gateway.http.formats.running_usage import stream_writer
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api
from actors.gateway.text.models.text_model import TextModel


@dataclass(frozen=True)
class AnswerFormat:
    """The answers of one API. `stream` and `whole` take a request, the model's name and its text; `whole` returns the pieces of
    the body of a request that is over, and after an empty piece the event loop should get a turn.
    """

    stream: Callable[[Request, str, TextModel], StreamWriter]
    whole: Callable[[Request, str, TextModel], Iterator[bytes]]
    error: ErrorBody = error_body


OPENAI = AnswerFormat(stream_writer, whole_body)
_ANTHROPIC = AnswerFormat(message_events, message_body, anthropic_error)
_OLLAMA = AnswerFormat(line_writer, ollama_body, ollama_error)
_FORMATS: dict[Api, AnswerFormat] = {
    "ollama_chat": _OLLAMA,
    "ollama_generate": _OLLAMA,
    "messages": _ANTHROPIC,
    "responses": AnswerFormat(response_events, response_body),
}


def format_of(api: Api) -> AnswerFormat:
    """How the answers of an API look."""
    return _FORMATS.get(api, OPENAI)
