"""The text of a model without a tokenizer: clients can only send token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actors.gateway.text.detokenizer import Detokenizer, NoText
from actors.gateway.text.models.text_model import NoTokenizer, TextModel
from actors.gateway.text.template_options import PLAIN, TemplateOptions


class IdsOnly(TextModel):
    """A model folder without a tokenizer, such as one with random weights. What needs one raises NoTokenizer."""

    def __init__(self, vocabulary: int, eos_tokens: list[int]) -> None:
        self.vocabulary, self.eos_tokens, self.chat_template = vocabulary, eos_tokens, ""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        raise NoTokenizer("this model has no tokenizer: send token ids")

    def decode(self, ids: Sequence[int]) -> str:
        raise NoTokenizer("this model has no tokenizer: its token ids have no text")

    def fewest_tokens(self, text: str) -> int:
        return 0

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        raise NoTokenizer("this model has no tokenizer: send token ids to /v1/generate")

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        return False

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        return NoText()

    def text_of(self, token: int) -> tuple[str, bytes]:
        return "", b""
