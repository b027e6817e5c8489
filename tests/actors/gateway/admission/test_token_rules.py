"""Bad words as tokens."""

from __future__ import annotations

from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.admission.token_rules import bad_tokens_of
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.terms import Terms


async def test_a_bad_word_is_banned_at_the_beginning_and_after_a_space() -> None:
    """The tokens of this model are bytes."""
    assert await bad_tokens_of(Terms(bad_words=["ab", " ab", "c"]), PromptEncoder(HashChainText(), 64)) == [
        [97, 98],
        [32, 97, 98],
        [99],
        [32, 99],
    ]
    assert await bad_tokens_of(Terms(), PromptEncoder(HashChainText(), 64)) == []
