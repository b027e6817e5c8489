"""A text model that does not tokenise before the test allows it."""

from __future__ import annotations

import threading

from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.waiting import DEADLINE_S


class HeldText(HashChainText):
    """The hash-chain text model; `encode` blocks until `may_go` is set. `n_encoded` counts its calls."""

    def __init__(self) -> None:
        self.may_go, self.n_encoded = threading.Event(), 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert self.may_go.wait(DEADLINE_S)
        self.n_encoded += 1
        return super().encode(text, add_special_tokens=add_special_tokens)
