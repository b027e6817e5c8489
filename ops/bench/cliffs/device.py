"""How long a step takes on a device: a formula of its rows. Pure. The constants are those of Llama-3.1-8B on one H200.

Products cost the larger of reading the weights and computing the tokens; short chunks fill the device less well. Attention of a
chunk cannot be faster than one tile that reads all keys of its row, attention of a decode row not faster than its splits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from messages.steps import Plan

_TFLOPS = ((64, 300.0), (256, 620.0), (512, 680.0), (1024, 720.0), (2048, 755.0), (8192, 755.0))  # (tokens, of products)


@dataclass(frozen=True)
class Device:
    """The constants. Defaults: docs/performance_gpus.md and kernel times measured for it."""

    flop_per_token: float = 13.96e9  # of the layers
    weights_s: float = 3.34e-3  # to read the weights once
    head_s: float = 0.3e-3  # output layer and sampling
    step_s: float = 0.25e-3  # small kernels of a step
    token_s: float = 1.3e-6  # of small kernels, for each token
    key_s: float = 1.6e-9  # prefill attention, for each pair of token and key, on the full device
    full_chunk_tokens: int = 528  # of one row that occupy all multiprocessors
    decode_key_s: float = 38e-9  # decode attention, for each key
    lone_key_s: float = 20e-9  # for each key of the longest row, in as many programs as a row gets
    beside: float = 1.1  # times as long as alone takes an urgent step beside others, which take longer by its time alone

    def step_times(self, plan: Plan) -> list[float]:
        """Seconds of each step of a plan."""
        counts, starts = plan.row_counts.astype(np.int64), plan.row_starts.astype(np.int64)
        return [self._step(counts, starts + index) for index in range(plan.n_steps)]

    def _step(self, counts: np.ndarray, starts: np.ndarray) -> float:
        n = int(counts.sum())
        products_s = max(self.weights_s * 1.03, n * self.flop_per_token / self._flops(n))
        is_prompt = counts > 1
        chunks, begun, keys = counts[is_prompt], starts[is_prompt], starts[~is_prompt]
        pairs = int((chunks * begun + chunks * chunks // 2).sum())
        least_pairs = self.full_chunk_tokens * int((begun + chunks).max(initial=0))
        prefill_s = self.key_s * max(pairs, least_pairs)
        decode_s = max(int(keys.sum()) * self.decode_key_s, int(keys.max(initial=0)) * self.lone_key_s)
        return products_s + prefill_s + decode_s + self.head_s + self.step_s + n * self.token_s

    @staticmethod
    def _flops(n: int) -> float:
        sizes, rates = zip(*_TFLOPS, strict=True)
        return float(np.interp(n, sizes, rates)) * 1e12
