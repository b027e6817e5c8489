"""Bad words as tokens."""

from __future__ import annotations

import pytest

from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.admission.token_rules import bad_tokens_of
from actors.gateway.requests.refusals import Refusal
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.terms import MAX_BAD_TOKENS, Terms


async def test_a_bad_word_is_banned_at_the_beginning_and_after_a_space() -> None:
    """The tokens of this model are bytes."""
    assert await bad_tokens_of(Terms(bad_words=["ab", " ab", "c"]), PromptEncoder(HashChainText(), 64)) == [
        [97, 98],
        [32, 97, 98],
        [99],
        [32, 99],
    ]
    assert await bad_tokens_of(Terms(), PromptEncoder(HashChainText(), 64)) == []


async def test_the_tokens_of_all_bad_words_are_bounded() -> None:
    """Each of the sequences of a request, of which there may be hundreds, has all of them in its messages."""
    word, encoder = "a" * 255, PromptEncoder(HashChainText(), 64)  # 255 tokens, and 256 after a space
    n_words = MAX_BAD_TOKENS // 511
    words = [f"{nth}{word[1:]}" for nth in range(n_words)]
    assert sum(map(len, await bad_tokens_of(Terms(bad_words=words), encoder))) == 511 * n_words
    with pytest.raises(Refusal, match=r"bad_words: expected words of at most 4096 tokens in all, .* got 4599"):
        await bad_tokens_of(Terms(bad_words=[*words, f"x{word[1:]}"]), encoder)
