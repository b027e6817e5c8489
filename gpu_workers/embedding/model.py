"""What an embedding model is: hidden states of texts, and vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


class HiddenStates(Protocol):
    """A model that gives each token of a text a hidden state."""

    def forward(self, texts: list[np.ndarray]) -> torch.Tensor:
        """`texts`: token ids, int32 [n] each, sorted by length. Returns the hidden states [tokens, hidden] of all texts, one
        after the other, float32 on the device of the weights."""
        ...


class TextEncoder(Protocol):
    """An embedding model that is loaded. Not thread-safe. `dimensions`: of its vectors."""

    dimensions: int

    def embed(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """`texts`: token ids, int32 [n] each, n >= 1. Returns vectors of length 1, float32 [texts, dimensions]."""
        ...
