"""What a load tool reads out of a streamed completion: when text came, how many tokens the server counted, what went wrong."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import msgspec

DONE = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


@dataclass
class MeasuredAnswer:
    """One request as its client saw it. Times are seconds of one monotonic clock."""

    scheduled_s: float  # when it should have been sent: the begin of every latency
    sent_s: float = 0.0
    ended_s: float = 0.0
    text_s: array[float] = field(default_factory=lambda: array("d"))  # arrival of each chunk that carried text
    n_chars: int = 0
    n_prompt: int = 0
    n_tokens: int = 0  # as counted by the server; 0 when it did not say
    finish: str = ""
    error: str = ""  # its kind, or nothing
    detail: str = ""
    text: list[str] | None = None  # kept on demand
    status: int = 0  # of HTTP; 0 until the head of the response has come

    def begin(self, status: int) -> None:
        """The head of the response has come."""
        self.status = status

    def handle(self, data: bytes, now_s: float) -> None:
        """One event of the stream."""
        if data == DONE:
            return
        try:
            event = _decoder.decode(data)
        except msgspec.DecodeError:
            self.fail("bad_event", data[:200].decode(errors="replace"))
            return
        if event.error is not None:
            self.fail("error_event", data[:200].decode(errors="replace"))
        if event.usage is not None:
            self.n_prompt, self.n_tokens = event.usage.prompt_tokens, event.usage.completion_tokens
        for choice in event.choices:
            text = choice.text
            if text is None and choice.delta is not None:
                text = choice.delta.content or choice.delta.reasoning_content
            if text:
                self.text_s.append(now_s)
                self.n_chars += len(text)
                if self.text is not None:
                    self.text.append(text)
            if choice.finish_reason:
                self.finish = choice.finish_reason

    def fail(self, kind: str, detail: str = "") -> None:
        """The answer went wrong; the first reason counts."""
        if not self.error:
            self.error, self.detail = kind, detail
