"""Which prompts are encoded at once, and which in a thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.text.models.hash_chain_text import HashChainText
from actors.gateway.text.template_options import PLAIN, TemplateOptions


class NotingText(HashChainText):
    """Notes whether it encodes in the main thread."""

    def __init__(self) -> None:
        super().__init__()
        self.is_inline: bool | None = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.is_inline = threading.current_thread() is threading.main_thread()
        return [1]

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        return self.encode("")


@pytest.mark.parametrize(
    ("texts", "is_inline"),
    [(["a"], True), (["a" * 4000], True), (["a" * 4096], False), (["a"] * 200, True), (["a"] * 4096, False)],
)
async def test_long_texts_and_many_short_ones_are_encoded_in_a_thread(texts: list[str], is_inline: bool) -> None:
    model = NotingText()
    await PromptEncoder(model, 8192).encode(texts, "prompt")
    assert model.is_inline is is_inline
    await PromptEncoder(model, 8192).encode_chat([{"role": "user", "content": text} for text in texts], "messages")
    assert model.is_inline is is_inline
