"""Turns token ids into text, one by one and in whole characters. Each sequence has its own detokenizer.

Byte-level vocabularies (SmolLM2, Llama 3, Qwen) use a table with the bytes of each token, which is exact and fast. Every other
vocabulary uses the tokenizers library's decode stream.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

_CONTEXT_TOKENS = 6  # so that a decoder does not treat the next token as the start of a text


class Detokenizer(Protocol):
    """Decodes the ids of one sequence."""

    def push(self, token: int) -> str:
        """Returns the text that this id completes; "" while a character is incomplete."""
        ...

    def push_all(self, tokens: Sequence[int]) -> list[str]:
        """As `push`, of many ids; returns a text for each."""
        return [self.push(token) for token in tokens]

    def flush(self) -> str:
        """Returns the rest of the text at the end of the sequence, with U+FFFD for an incomplete character."""
        ...


class NoText(Detokenizer):
    """For models without a tokenizer: the text is always empty."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


class NumberText(Detokenizer):
    """For the hash-chain model: the decimal id, then a space."""

    def push(self, token: int) -> str:
        return f"{token} "

    def flush(self) -> str:
        return ""


class ByteText(Detokenizer):
    """For byte-level vocabularies. `bytes_of[id]`: the bytes of a token, empty for tokens that are not shown. `text_of`: what
    `whole_texts` says of them, with which many ids take a tenth of the time.
    """

    def __init__(self, bytes_of: Sequence[bytes], text_of: Sequence[str | None] = ()) -> None:
        self._bytes_of, self._text_of = bytes_of, text_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._has_rest = False  # the newest character is incomplete

    def push(self, token: int) -> str:
        if not self._has_rest and token < len(self._text_of) and (text := self._text_of[token]) is not None:
            return text
        if token >= len(self._bytes_of):
            return ""
        text = self._decoder.decode(self._bytes_of[token])
        self._has_rest = bool(self._decoder.getstate()[0])
        return text

    def push_all(self, tokens: Sequence[int]) -> list[str]:
        if max(tokens, default=0) >= len(self._text_of):
            return super().push_all(tokens)
        texts = list(map(self._text_of.__getitem__, tokens))
        if not self._has_rest and None not in texts:
            return texts  # pyright: ignore[reportReturnType] none of them is None
        return [self.push(token) if text is None or self._has_rest else text for token, text in zip(tokens, texts, strict=True)]

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class StreamText(Detokenizer):
    """For any other vocabulary: the tokenizers library's decode stream. `context`: the last ids of the prompt.

    `special`: the ids that the library leaves out with `skips_special`, as `special_ids` finds them. It decodes all ids since
    the last text again with each id, so an answer that goes on with its end token would take the square of its length.
    """

    def __init__(
        self, tokenizer: Tokenizer, context: Sequence[int], *, skips_special: bool = True, special: Collection[int] = ()
    ) -> None:
        self._tokenizer, self._skips_special = tokenizer, skips_special
        self._left_out = special if skips_special else ()
        self._context = list(context)[-_CONTEXT_TOKENS:]
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=self._skips_special)
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        if not self._pending and token in self._left_out:
            return ""
        self._pending.append(token)
        try:
            text = self._stream.step(self._tokenizer, token)
        except Exception:  # the library fails when the text gets shorter: decode all pending ids now
            return self._restart()
        if text is None:
            return ""
        self._remember()
        return text

    def flush(self) -> str:
        return self._restart() if self._pending else ""

    def _restart(self) -> str:
        before = self._tokenizer.decode(self._context, skip_special_tokens=self._skips_special)
        whole = self._tokenizer.decode(self._context + self._pending, skip_special_tokens=self._skips_special)
        self._remember()
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=self._skips_special)
        return whole[len(before) :]

    def _remember(self) -> None:
        self._context = (self._context + self._pending)[-_CONTEXT_TOKENS:]
        self._pending = []


def texts_of(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    """The text that each of these ids completes, in their order; the last one has the rest of the text."""
    texts = [detokenizer.push(token) for token in ids]
    if texts:
        texts[-1] += detokenizer.flush()
    return texts


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of special tokens, which are not shown unless a client asks for them."""
    return frozenset(token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special)


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


def whole_texts(table: Sequence[bytes]) -> list[str | None]:
    """The text of each token of `byte_table` that consists of whole characters; None for the others."""
    return [_whole_text(raw) for raw in table]


def _whole_text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def with_special(table: Sequence[bytes], tokenizer: Tokenizer) -> list[bytes]:
    """A copy of `byte_table` in which special tokens have their text."""
    shown = list(table)
    for token, added in tokenizer.get_added_tokens_decoder().items():
        if added.special:
            shown[token] = added.content.encode()
    return shown


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
