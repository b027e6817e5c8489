"""What the gateway must know about the text of the model that it serves: text to token ids and back, chats, end tokens.

Encoding blocks; the caller runs it in a thread for long texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from actors.gateway.text.detokenizer import Detokenizer
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.tools.dialects import Dialect
from messages.generation.terms import Terms

MOST_TOKENS = 1 << 20  # making a list of the ids of longer texts would hold the interpreter's lock for more than 20 ms


class NoTokenizer(ValueError):
    """The model has no tokenizer: clients can only send token ids."""


class TextTooLong(ValueError):
    """The text has more tokens than any context can hold."""


class TextModel(Protocol):
    """What the gateway knows about the model's text."""

    vocabulary: int  # number of token ids; the largest is one less
    eos_tokens: list[int]  # ids that end an answer, ascending
    chat_template: str  # the Jinja source; "": conversations cannot be encoded
    takes_grammars: bool = False  # answers can be made to match a grammar
    missing_bytes: frozenset[int] = frozenset()  # of UTF-8: no token has them
    dialect: Dialect = Dialect.HERMES  # how it writes calls of tools
    reasoning: ReasoningMarks | None = None  # around its reasoning; None: it has none

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a plain prompt, with the special tokens that prompts of this model begin with. Raises: NoTokenizer,
        TextTooLong."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Raises: NoTokenizer."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """A lower bound on the number of ids of a plain prompt, without encoding it; 0 if there is none."""
        ...

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        """Token ids of a conversation ({"role", "content"}; perhaps "tool_calls"). `tools`: those that the model may call, in
        OpenAI's format. Raises: NoTokenizer, TemplateError, TextTooLong."""
        ...

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        """True if this conversation should be encoded in a thread even if it is short."""
        ...

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        """A detokenizer for one output that follows `prompt` (int32 [n]). skips_special: special tokens have no text."""
        ...

    def text_of(self, token: int) -> tuple[str, bytes]:
        """One token as text (U+FFFD for a part of a character) and as bytes, for display beside its log-probability."""
        ...


def detokenizers(model: TextModel, terms: Terms) -> Callable[[np.ndarray], Detokenizer]:
    """A function that makes the detokenizer of an answer from its prompt, int32 [n], for requests with these terms."""
    return partial(model.detokenizer, skips_special=terms.skip_special_tokens)
