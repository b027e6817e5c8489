"""Which prompts are encoded at once, and which in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from actors.gateway.admission import prompt_encoder
from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.text.models.hash_chain_text import HashChainText
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from tests.support.waiting import DEADLINE_S


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


class FloodedText(HashChainText):
    """Text that begins with an f is encoded when `may_go` is set, and other text at once."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert text[0] != "f" or self.may_go.wait(DEADLINE_S)
        return [1]


async def test_a_text_of_one_caller_does_not_wait_for_all_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, n_threads = FloodedText(), 3
    monkeypatch.setattr(prompt_encoder, "MOST_THREADS", n_threads)
    encoder = PromptEncoder(model, 8192)
    flood = [asyncio.ensure_future(encoder.encode(["f" * 5000], "prompt", caller=b"flood")) for _ in range(40)]
    await asyncio.sleep(0)
    turns = [{"role": "user", "content": "x" * 5000}]
    async with asyncio.timeout(DEADLINE_S / 2):
        assert await encoder.encode(["x" * 5000], "prompt", caller=b"other") == [[1]]
        assert len(await encoder.encode_chat(turns, "messages", caller=b"other"))
        assert await encoder.decode(np.full(5000, 1, np.int32), "tokens", caller=b"other")
    assert not any(one.done() for one in flood)
    model.may_go.set()
    assert await asyncio.gather(*flood) == [[[1]]] * 40
