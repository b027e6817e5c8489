"""Where the finished weights of a rank lie: each tensor that a model computes with goes through `WeightMemory.keep`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class WeightMemory(Protocol):
    """The memory for the weights of one rank's part of a model. `wants_content`: tensors are to be filled from a checkpoint."""

    wants_content: bool

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The finished tensor `name`, as `make` makes it. It is not changed any more. Names of a model are unique."""
        ...


class PrivateWeights(WeightMemory):
    """Each tensor stays in the memory of this process in which it was made."""

    wants_content = True

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `make` makes; the name is not used."""
        return make()
