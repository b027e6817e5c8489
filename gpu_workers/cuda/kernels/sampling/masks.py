"""Which tokens grammars allow, as the sampling kernels read it.

A captured step leaves out the rows that have a grammar (`SamplingRows.constrained`), because their masks come while its layers
run. They are sampled from the same logits by a launch of their own, which reads the masks together with the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class RowMasks:
    """M samples that have a mask each. All tensors are on the device and may be longer than M."""

    index: torch.Tensor  # [M] int64: the row of the logits, and the element of the ids; -1: nothing is sampled
    begins: torch.Tensor  # [M] int64: where the sample's mask begins in `words`
    words: torch.Tensor  # [all words] int32: bit t % 32 of word t // 32 of a mask allows token t


def arguments_of(
    masks: RowMasks | Literal["later"] | None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """INDEX, MASKS and BEGINS of the kernels, for the masks that `sample_rows` takes."""
    return (masks.index, masks.words, masks.begins) if isinstance(masks, RowMasks) else (None, None, None)
