"""Choosing the next token. The rule, exactly, for this file and for every kernel that does the same:

 1. Penalties (rows that ask for them): a token that occurs in prompt or output has its logit divided by `repetition` when it
    is above 0 and multiplied otherwise; then `frequency` * its count in the output is taken off, and `presence` if that
    count is not 0. Prompt and output are the slot's tokens before the position that is sampled.
 2. temperature 0: the lowest id among those with the greatest logit. Nothing else applies.
 3. p = softmax(logit / temperature), in float32.
 4. top_k = k > 0: tokens with p below the k-th greatest p are out (equals stay).
 5. top_p < 1: of what is left, the fewest most probable tokens that hold at least top_p of the mass left stay, and those
    equal to the least probable of them.
 6. u = (x >> 8) / 2^24, where x is the first word of Philox4x32-10 with key (low, high word of seed) and counter (low, high
    word of position, 0, 0); position is the index of the sampled token in its whole sequence, prompt included.
 7. The token is the first, in order of ids, at which the running sum of p over the tokens left exceeds u * that whole sum;
    should rounding leave none, the last one left.

Nothing in it depends on the other rows of the batch. Philox: Salmon, Moraes, Dror, Shaw 2011.
"""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.sampling_table import SamplingRows

_TOP_GUESS = 256  # top_p nearly always ends within so many tokens; on a CPU this saves sorting the vocabulary
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def position_noise(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """u of step 6. seeds, positions [S] int64, not negative. Returns [S] float32 in [0, 1)."""
    return ((philox(seeds, positions) >> np.uint64(8)).astype(np.float64) * 2.0**-24).astype(np.float32)


def philox(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """First word of Philox4x32-10 for keys and counters [S] of up to 64 bits. Returns [S] uint64, below 2^32."""
    key, counter = keys.astype(np.uint64), counters.astype(np.uint64)
    k0, k1 = key & _LOW, key >> _SHIFT
    c0, c1 = counter & _LOW, counter >> _SHIFT
    c2 = c3 = np.zeros_like(c0)
    for round_number in range(10):
        bump0, bump1 = np.uint64(round_number * _W0 & 0xFFFFFFFF), np.uint64(round_number * _W1 & 0xFFFFFFFF)
        product0, product1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ ((k0 + bump0) & _LOW),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ ((k1 + bump1) & _LOW),
            product0 & _LOW,
        )
    return c0


def sample_tokens(logits: torch.Tensor, rows: SamplingRows, tokens: torch.Tensor) -> torch.Tensor:
    """Chosen ids [S] int64 on the device of `logits` [S, vocabulary] float32 (left as it is).

    `tokens` [slots, length] int32, same device: the known tokens of every slot, read only for rows with penalties.
    """
    if rows.is_all_greedy:
        return logits.argmax(-1)
    is_penalised = rows.is_penalised
    if is_penalised.any():
        logits = logits.clone()
        for row in np.flatnonzero(is_penalised).tolist():
            _penalise(logits[row], rows, row, tokens)
    chosen = logits.argmax(-1)
    random = np.flatnonzero(rows.temperature)
    if len(random) == len(rows.slots):
        return _sample_random(logits, rows, random)
    if len(random):
        index = torch.from_numpy(random).to(logits.device)
        chosen[index] = _sample_random(logits[index], rows, random)
    return chosen


def _penalise(logits: torch.Tensor, rows: SamplingRows, row: int, tokens: torch.Tensor) -> None:
    """Step 1 for one row, in place. logits [vocabulary]."""
    known = tokens[int(rows.slots[row]), : int(rows.positions[row])].to(torch.int64)
    repetition = float(rows.repetition[row])
    if repetition != 1.0:
        occurring = logits[known]
        logits[known] = torch.where(occurring > 0, occurring / repetition, occurring * repetition)
    output = known[int(rows.n_prompt[row]) :]
    counts = torch.zeros_like(logits).index_add_(0, output, torch.ones_like(output, dtype=logits.dtype))
    logits -= counts * float(rows.frequency[row]) + (counts > 0) * float(rows.presence[row])


def _sample_random(logits: torch.Tensor, rows: SamplingRows, index: np.ndarray) -> torch.Tensor:
    """Steps 3 to 7. logits [N, vocabulary] of the rows `index` [N]. Returns [N] int64."""
    device = logits.device
    host = np.stack((rows.temperature[index], position_noise(rows.seed[index], rows.positions[index]), rows.top_p[index]))
    temperature, noise, top_p = torch.from_numpy(host).to(device).unsqueeze(-1).unbind()
    p = torch.softmax(logits / temperature, -1)
    top_k = rows.top_k[index]
    if (rows.top_p[index] < 1).any() or top_k.any():
        p = p.masked_fill(p < least_kept(p, top_k, top_p, bool((rows.top_p[index] < 1).any())), 0.0)
    sums = p.cumsum(-1, dtype=torch.float64)  # float32 would let a parallel sum run backwards between equal entries
    whole = sums[:, -1:].contiguous()
    first_above = torch.searchsorted(sums, noise * whole, right=True)
    return torch.minimum(first_above, torch.searchsorted(sums, whole)).squeeze(-1)


def least_kept(p: torch.Tensor, top_k: np.ndarray, top_p: torch.Tensor, has_top_p: bool) -> torch.Tensor:
    """Steps 4 and 5 as a threshold: the probability [N, 1] of the least probable token that stays.

    p [N, vocabulary] float32; top_k [N] int64 on the host, 0 is off; top_p [N, 1] float32, 1 is off.
    """
    vocabulary = p.shape[-1]
    k = np.minimum(top_k, vocabulary)
    width = vocabulary if has_top_p and p.is_cuda else max(int(k.max(initial=0)), min(_TOP_GUESS, vocabulary))
    top = p.topk(width, -1).values
    last = torch.from_numpy(np.maximum(k, 1) - 1).to(p.device)[:, None]
    is_limited = torch.from_numpy(k > 0).to(p.device)[:, None]
    least = torch.where(is_limited, top.gather(-1, last), 0.0)
    if not has_top_p:
        return least
    left = torch.where(p >= least, p, 0.0).sum(-1, keepdim=True, dtype=torch.float64)
    sums = top.cumsum(-1, dtype=torch.float64)
    needed = left * top_p
    if width < vocabulary and bool(((sums[:, -1:] < needed) & (top[:, -1:] > least) & (top_p < 1)).any()):
        top = p.sort(-1, descending=True).values
        sums = top.cumsum(-1, dtype=torch.float64)
    enough = torch.searchsorted(sums, needed).clamp_(max=top.shape[-1] - 1)
    return torch.where(top_p < 1, torch.maximum(least, top.gather(-1, enough)), least)
