"""How each slot wants its tokens chosen, as arrays: the host's side of sampling, taken apart once when a sequence arrives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from messages.generation import Sampling

_COLDEST = 1e-4


def temperature_of(sampling: Sampling) -> float:
    """The temperature to divide by; 0 is greedy. Anything colder than 0.0001 is: the quotients would leave float32."""
    return sampling.temperature if sampling.temperature >= _COLDEST else 0.0


@dataclass(frozen=True)
class SamplingRows:
    """What is asked of S samples of one step. All arrays [S], on the host."""

    slots: np.ndarray  # int64
    positions: np.ndarray  # int64: index of the token to be sampled in its whole sequence
    n_prompt: np.ndarray  # int64: tokens of the sequence that are prompt
    temperature: np.ndarray  # float32; 0 is greedy
    top_p: np.ndarray  # float32; 1 is off
    top_k: np.ndarray  # int64; 0 is off
    seed: np.ndarray  # int64
    presence: np.ndarray  # float32
    frequency: np.ndarray  # float32
    repetition: np.ndarray  # float32; 1 is off
    logprobs: np.ndarray  # int64: -1 none, n: the chosen token's and the top n

    @property
    def is_all_greedy(self) -> bool:
        """Is one argmax all that is needed? (Logprobs aside.)"""
        return not self.temperature.any() and not self.is_penalised.any()

    @property
    def is_penalised(self) -> np.ndarray:
        """[S] bool."""
        return (self.presence != 0) | (self.frequency != 0) | (self.repetition != 1)

    @property
    def wants_logprobs(self) -> bool:
        """Does any row?"""
        return bool((self.logprobs >= 0).any())


class SamplingTable:
    """`Sampling` by slot, as columns."""

    def __init__(self, n_slots: int) -> None:
        self._n_prompt = np.zeros(n_slots, np.int64)
        self._temperature = np.zeros(n_slots, np.float32)
        self._top_p = np.ones(n_slots, np.float32)
        self._top_k = np.zeros(n_slots, np.int64)
        self._seed = np.zeros(n_slots, np.int64)
        self._presence = np.zeros(n_slots, np.float32)
        self._frequency = np.zeros(n_slots, np.float32)
        self._repetition = np.ones(n_slots, np.float32)
        self._logprobs = np.full(n_slots, -1, np.int64)
        self._is_penalised = np.zeros(n_slots, bool)

    def put(self, slot: int, sampling: Sampling, n_prompt: int) -> None:
        """A sequence enters a slot."""
        self._n_prompt[slot] = n_prompt
        self._temperature[slot] = temperature_of(sampling)
        self._top_p[slot] = sampling.top_p
        self._top_k[slot] = sampling.top_k
        self._seed[slot] = sampling.seed
        self._presence[slot] = sampling.presence_penalty
        self._frequency[slot] = sampling.frequency_penalty
        self._repetition[slot] = sampling.repetition_penalty
        self._logprobs[slot] = sampling.logprobs
        has_penalty = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
        self._is_penalised[slot] = bool(has_penalty)

    def is_penalised(self, slots: np.ndarray) -> np.ndarray:
        """[N] bool: do logits of these slots [N] depend on the tokens before? A captured step does not know how."""
        return self._is_penalised[slots]

    def logprobs_of(self, slots: np.ndarray) -> np.ndarray:
        """[N] int64, as in SamplingRows."""
        return self._logprobs[slots]

    def take(self, slots: np.ndarray, positions: np.ndarray) -> SamplingRows:
        """The rows of these samples: slots and positions [S] int64."""
        return SamplingRows(
            slots=slots,
            positions=positions,
            n_prompt=self._n_prompt[slots],
            temperature=self._temperature[slots],
            top_p=self._top_p[slots],
            top_k=self._top_k[slots],
            seed=self._seed[slots],
            presence=self._presence[slots],
            frequency=self._frequency[slots],
            repetition=self._repetition[slots],
            logprobs=self._logprobs[slots],
        )
