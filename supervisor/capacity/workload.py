"""What a server is asked to carry, as `--load "5 requests/s, 512 prompt tokens, 128 output tokens"` says it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from messages.errors import ConfigError

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(.*)")
_EXAMPLE = '"5 requests/s, 512 prompt tokens, 128 output tokens"'
_WORDS = {
    "requests/s": "rate", "request/s": "rate", "requests a second": "rate", "requests per second": "rate",
    "req/s": "rate", "rps": "rate", "qps": "rate",
    "prompt tokens": "prompt", "prompt": "prompt", "tokens in": "prompt", "in": "prompt",
    "output tokens": "output", "output": "output", "tokens out": "output", "out": "output",
}  # fmt: skip
_PER_MINUTE = {"requests/min": "rate", "requests a minute": "rate", "requests per minute": "rate"}
_MOST = 1e9


@dataclass(frozen=True)
class OfferedLoad:
    """Requests that arrive at random times, independently of each other. Lengths are means."""

    rate_per_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def whole_tokens(self) -> int:
        """Tokens of a sequence at its end."""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context_tokens(self) -> float:
        """Keys that a step reads of a sequence which is being answered, on average."""
        return self.prompt_tokens + self.output_tokens / 2

    def text(self) -> str:
        """The workload in words that `parse_load` reads."""
        return f"{self.rate_per_s:g} requests/s, {self.prompt_tokens} prompt tokens, {self.output_tokens} output tokens"


def parse_load(text: str) -> OfferedLoad:
    """Read a workload: three numbers with their words, in any order. Raises: ConfigError that says what was expected."""
    found: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _PART.fullmatch(part)
        words = " ".join(match[2].split()) if match else ""
        name = _WORDS.get(words) or _PER_MINUTE.get(words)
        if match is None or name is None or name in found:
            raise _refused(text)
        found[name] = float(match[1]) / (60 if words in _PER_MINUTE else 1)
    if found.keys() != set(_WORDS.values()) or not all(0 < value <= _MOST for value in found.values()):
        raise _refused(text)
    if not (found["prompt"].is_integer() and found["output"].is_integer()):
        raise _refused(text)
    return OfferedLoad(found["rate"], int(found["prompt"]), int(found["output"]))


def _refused(text: str) -> ConfigError:
    return ConfigError(
        f"load: expected numbers above 0 of requests/s, prompt tokens and output tokens, as in {_EXAMPLE}, got {text!r}"
    )
