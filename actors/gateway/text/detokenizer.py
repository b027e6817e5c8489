"""Token ids to text, one by one, never half a character. Each sequence of a request has one.

Two ways: a table of bytes for each token (byte-level vocabularies: SmolLM2, Llama 3, Qwen), exact and cheap; and the
tokenizers library's own stream for every other vocabulary.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

_CONTEXT_TOKENS = 6  # enough for a decoder to know that it is not at the beginning of a text


class Detokenizer(Protocol):
    """Text of one growing sequence of ids."""

    def push(self, token: int) -> str:
        """The text that this id makes certain; empty while a character is incomplete."""
        ...

    def flush(self) -> str:
        """The text that is left when no more ids come (U+FFFD for an incomplete character)."""
        ...


class NoText:
    """For models without a vocabulary of their own (random weights): ids only."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


class NumberText:
    """The hash-chain model's text: the id itself, then a space."""

    def push(self, token: int) -> str:
        return f"{token} "

    def flush(self) -> str:
        return ""


class ByteText:
    """Byte-level vocabularies: `bytes_of[id]` are the bytes of a token (empty for special ones)."""

    def __init__(self, bytes_of: Sequence[bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._bytes_of[token]) if token < len(self._bytes_of) else ""

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class StreamText:
    """Any other vocabulary, by the tokenizers library. `context`: the last ids of the prompt."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._context = list(context)[-_CONTEXT_TOKENS:]
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=True)
        self._undecided: list[int] = []

    def push(self, token: int) -> str:
        self._undecided.append(token)
        try:
            text = self._stream.step(self._tokenizer, token)
        except Exception:  # the library refuses sequences whose text shrinks; what is undecided is decoded as it stands
            return self._restart()
        if text is None:
            return ""
        self._remember()
        return text

    def flush(self) -> str:
        return self._restart() if self._undecided else ""

    def _restart(self) -> str:
        before = self._tokenizer.decode(self._context, skip_special_tokens=True)
        whole = self._tokenizer.decode(self._context + self._undecided, skip_special_tokens=True)
        self._remember()
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=True)
        return whole[len(before) :]

    def _remember(self) -> None:
        self._context = (self._context + self._undecided)[-_CONTEXT_TOKENS:]
        self._undecided = []


def byte_table(tokenizer: Tokenizer) -> list[bytes] | None:
    """The bytes of every token of a byte-level vocabulary (special tokens: none), or None for another kind.

    The alphabet is GPT-2's: printable bytes stand for themselves, the others are moved up to U+0100 and above.
    """
    if not _is_byte_level(tokenizer):
        return None
    byte_of = _byte_by_character()
    added = tokenizer.get_added_tokens_decoder()
    table = [b""] * tokenizer.get_vocab_size(with_added_tokens=True)
    for text, token in tokenizer.get_vocab(with_added_tokens=True).items():
        if token >= len(table):
            table += [b""] * (token + 1 - len(table))
        if token in added:
            table[token] = b"" if added[token].special else _bytes_of(text, byte_of)
        else:
            table[token] = _bytes_of(text, byte_of)
    return table


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    return type(tokenizer.decoder).__name__ == "ByteLevel"


def _bytes_of(text: str, byte_of: dict[str, int]) -> bytes:
    try:
        return bytes(byte_of[character] for character in text)
    except KeyError:
        return text.encode("utf-8")  # an added token, written in plain characters


def _byte_by_character() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
