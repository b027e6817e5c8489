"""What an embedding model is: hidden states of texts, and vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


class HiddenStates(Protocol):
    """A model that gives each token of a text a hidden state."""

    def forward(self, texts: list[np.ndarray], tokens: np.ndarray | None = None) -> torch.Tensor:
        """`texts`: token ids, int32 [n] each, n >= 1, sorted by length, one after the other; `tokens`: int64 [S], the tokens of
        this batch whose states are wanted; None: all. Returns the hidden states [S, hidden], float32 on the model's device."""
        ...


class TextEncoder(Protocol):
    """An embedding model that is loaded. Not thread-safe. `dimensions`: of its vectors."""

    dimensions: int

    def embed(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """`texts`: token ids, int32 [n] each, n >= 1. Returns vectors, float32 [texts, dimensions], of length 1 if the model's
        files ask for that."""
        ...
