"""Pages of the hash chain, whose compressed form is exact."""

from __future__ import annotations

import numpy as np

from gpu_workers.hash_chain import STEP, mix
from messages.steps import PAGE_TOKENS


def chain_page(number: int) -> np.ndarray:
    """The bytes of a page of the hash chain, of its own for each number. Its compressed form is exact."""
    state, states = mix(number), []
    for index in range(PAGE_TOKENS):
        states.append(state)
        state = (state * STEP + mix((number * 31 + index) % 2**31 + 1)) % 2**64
    return np.array(states, np.uint64).view(np.uint8)
