"""The reference model of tests: the next token is a hash of all tokens so far. `hash_chain_engine.py` computes it as an engine;
the functions here tell tests and load tools what to expect.

    state(p) = state(p - 1) * STEP + mix(token(p) + 1)         modulo 2^64; state(-1) = START
    next(p)  = mix(state(p) ^ mix(seed)) % vocabulary          greedy sequences have seed 0
               and from there the next id that is not banned

`mix` is the finaliser of splitmix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise

import numpy as np

START = 0x5EED_0F_7A4D164AD
STEP = 0x9E37_79B9_7F4A_7C15  # odd, so it has an inverse, and the states of a chunk follow from one cumulative sum
_MIX_A, _MIX_B, _MIX_C = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB
_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """A hash of a number below 2^64, below 2^64 itself."""
    value = (value + _MIX_A) & _MASK
    value = ((value ^ (value >> 30)) * _MIX_B) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_C) & _MASK
    return value ^ (value >> 31)


def next_allowed(token: int, vocabulary: int, banned: Set[int]) -> int:
    """The first id from `token` on, the vocabulary taken as a ring, that is not banned; `token` itself if all are."""
    return next((i % vocabulary for i in range(token, token + vocabulary) if i % vocabulary not in banned), token)


def next_free(token: int, is_banned: np.ndarray) -> int:
    """`next_allowed` with the banned ids as [vocabulary] bool."""
    if not is_banned[token]:
        return token
    free = np.flatnonzero(~is_banned)
    return int(free[np.searchsorted(free, token) % len(free)]) if len(free) else token


def hash_chain_tokens(
    prompt: list[int], n: int, seed: int, vocabulary: int, banned: Set[int] = frozenset(), n_banned: int = 0
) -> list[int]:
    """The `n` tokens that the hash chain generates after `prompt`. seed: 0 for greedy requests; banned: ids that do not occur
    among the first `n_banned`. Written without arrays, so that it shares no code with the engine."""
    state, generated = START, []
    for token in prompt:
        state = (state * STEP + mix(token + 1)) & _MASK
    for _ in range(n):
        token = mix(state ^ mix(seed)) % vocabulary
        generated.append(next_allowed(token, vocabulary, banned) if len(generated) < n_banned else token)
        state = (state * STEP + mix(generated[-1] + 1)) & _MASK
    return generated


def prompt_logprobs(prompt: Sequence[int]) -> list[float]:
    """The log probabilities of a prompt's tokens from the second on, as the engine gives them. Written without arrays, too."""
    state, found = START, []
    for token, following in pairwise(prompt):
        state = (state * STEP + mix(token + 1)) & _MASK
        found.append(-((((mix(state) & 0xFFFF) ^ following) % 4096) + 1) / 256)
    return found


def mix_array(values: np.ndarray) -> np.ndarray:
    """`mix` of each of values, uint64 of any shape."""
    values = values + np.uint64(_MIX_A)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX_B)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX_C)
    return values ^ (values >> np.uint64(31))


def unmix_array(values: np.ndarray) -> np.ndarray:
    """The inverse of `mix_array`."""
    values = values ^ (values >> np.uint64(31)) ^ (values >> np.uint64(62))
    values = values * np.uint64(pow(_MIX_C, -1, 1 << 64))
    values = values ^ (values >> np.uint64(27)) ^ (values >> np.uint64(54))
    values = values * np.uint64(pow(_MIX_B, -1, 1 << 64))
    values = values ^ (values >> np.uint64(30)) ^ (values >> np.uint64(60))
    return values - np.uint64(_MIX_A)


def powers(base: int, n: int) -> np.ndarray:
    """[n] uint64: base^0, base^1, ... modulo 2^64."""
    powers = np.full(n, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)
