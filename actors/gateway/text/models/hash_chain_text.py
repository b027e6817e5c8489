"""The text of the hash-chain model, by which tests know every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actors.gateway.text.detokenizer import Detokenizer, NumberText
from actors.gateway.text.models.text_model import MOST_TOKENS, TextModel, TextTooLong
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.tools.telling import told
from messages.hash_chain import HASH_CHAIN_VOCABULARY


class HashChainText(TextModel):
    """The hash-chain model: the ids of a prompt are its UTF-8 bytes; the text of an output id is its decimal number."""

    vocabulary = HASH_CHAIN_VOCABULARY
    eos_tokens: list[int] = []
    chat_template = "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}assistant: "

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) > MOST_TOKENS:
            raise TextTooLong(f"expected text of at most {MOST_TOKENS} tokens, got {len(text)}")
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.text_of(token)[0] for token in ids)

    def fewest_tokens(self, text: str) -> int:
        return len(text)

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        text = "".join(f"{turn['role']}: {turn['content']}\n" for turn in told(turns, tools))
        if options.continues_last:
            return self.encode(text[:-1])
        return self.encode(text + "assistant: " * options.has_answer_head)

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        return False

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        return NumberText()

    def text_of(self, token: int) -> tuple[str, bytes]:
        text = f"{token} "
        return text, text.encode()
