"""The beginnings of prompts, which are kept beside answers to forget those to prompts that begin alike. Pure."""

from __future__ import annotations

START_BYTES = 1024  # 256 tokens, int32 little-endian


def may_begin(start: bytes, tokens: bytes) -> bool:
    """True if a prompt, whose first START_BYTES are `start`, may begin with `tokens`."""
    return start.startswith(tokens) or (len(start) == START_BYTES and tokens.startswith(start))
