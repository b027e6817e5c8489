"""Sampling of the next token. The exact rule, for this file and for every kernel that samples:

 1. Rules for single tokens (rows that ask for them): the logits of all tokens but the allowed ones become minus infinity, and
    biases are added, minus infinity for bad words of one token.
    Penalties (rows that ask for them): a token that occurs in prompt or output has its logit divided by `repetition` if the
    logit is above 0, and multiplied otherwise. Then `frequency` times its count in the output is subtracted, and `presence` if
    that count is not 0. Prompt and output are the slot's tokens before the sampled position.
    Bans (rows before their `banned_until`): the logits of banned tokens become minus infinity, and so do those of the last
    token of each longer bad word whose other tokens are the last ones of the output.
 2. temperature 0: the lowest id among those with the greatest logit. The next steps do not apply.
 3. p = softmax(logit / temperature), in float32.
 4. min_p > 0: tokens with p below min_p times the greatest p are removed (before the next two filters, as in vLLM).
    top_k = k > 0: tokens with p below the k-th greatest p are removed (equal ones stay).
 5. top_p < 1: of the tokens that are left, the fewest most probable ones stay that hold at least top_p of their mass, and
    those equal to the least probable of them.
 6. u = (x >> 8) / 2^24, where x is the first word of Philox4x32-10 with key (low, high word of seed) and counter (low, high
    word of position, 0, 0); position is the index of the sampled token in its whole sequence, prompt included.
 7. The token is the first, in order of ids, at which the running sum of p over the tokens that are left exceeds u times their
    whole sum; if rounding leaves none, the last one left.

A row's token does not depend on the other rows of the batch. Philox: Salmon, Moraes, Dror, Shaw 2011.
"""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.batch.slot_rules import ANY_TOKEN, SlotRules
from gpu_workers.batch.uploads import upload, upload_together

_BLOCK = 128  # ids per block when a token is picked
_CPU_CHUNK = 1 << 18  # probabilities that a CPU handles at once: they stay in its cache and in memory that is mapped already
_BIN_BITS = 16  # trailing bits of a float32 that the bins of `_least_of_row` leave out
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def position_noise(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """u of step 6: [S] float32 in [0, 1), on the host. seeds, positions: [S] int64, not negative."""
    return ((philox(seeds, positions) >> np.uint64(8)).astype(np.float64) * 2.0**-24).astype(np.float32)


def philox(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """First word of Philox4x32-10: [S] uint64, below 2^32. keys, counters: [S] integers of at most 64 bits, not negative."""
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
    """The sampled ids: [S] int64 on the device of the logits.

    logits: [S, vocabulary] float32, not changed; tokens: [slots, length] int32, same device: the known tokens of every slot,
    read only for rows with penalties.
    """
    if rows.is_all_greedy:
        return argmax(logits)
    logits = edit_logits(logits, rows, tokens)
    random = np.flatnonzero(rows.temperature)
    is_whole = len(random) == len(rows.slots)
    chosen = torch.empty(len(random), dtype=torch.int64, device=logits.device) if is_whole else argmax(logits)
    noise = position_noise(rows.seed[random], rows.positions[random])
    chunk = len(random) if logits.is_cuda else max(1, _CPU_CHUNK // logits.shape[-1])
    for first in range(0, len(random), max(chunk, 1)):
        part = random[first : first + chunk]
        index = slice(first, first + len(part)) if is_whole else upload(part, logits.device)
        chosen[index] = _sample_random(logits[index], rows, part, noise[first : first + chunk])
    return chosen


def edit_logits(logits: torch.Tensor, rows: SamplingRows, tokens: torch.Tensor) -> torch.Tensor:
    """Step 1: a copy with rules, penalties and bans applied, or `logits` itself if no row has any. Arguments as in
    `sample_tokens`."""
    edited = np.flatnonzero(rows.is_edited)
    if not len(edited):
        return logits
    logits = logits.clone()
    for row in edited.tolist():
        rules = rows.rules_of(row)
        if rules is not None:
            _follow_rules(logits[row], rules)
        _penalise(logits[row], rows, row, tokens)
        if rules is not None and len(rules.lasts):
            _ban_last_tokens(logits[row], rules, rows, row, tokens)
        banned = rows.banned_of(row)
        if banned is not None:
            logits[row].index_fill_(0, upload(banned, logits.device), float("-inf"))
    return logits


def _follow_rules(logits: torch.Tensor, rules: SlotRules) -> None:
    """Applies the rules of step 1 to one row, in place. logits [vocabulary]."""
    if rules.allowed is not None:
        allowed = upload(rules.allowed, logits.device)
        kept = logits[allowed]
        logits.fill_(float("-inf"))[allowed] = kept
    if len(rules.biased):
        ids, biases = upload(rules.biased, logits.device), upload(rules.biases, logits.device)
        logits.index_copy_(0, ids, logits[ids] + biases)


def _ban_last_tokens(logits: torch.Tensor, rules: SlotRules, rows: SamplingRows, row: int, tokens: torch.Tensor) -> None:
    """The bans of longer bad words for one row, in place. Nothing waits for the device. logits [vocabulary]."""
    position = int(rows.positions[row])
    n_tail = min(rules.heads.shape[1], position - int(rows.n_prompt[row]))
    tail = tokens[int(rows.slots[row]), position - n_tail : position]
    heads, lasts = upload(rules.heads[:, rules.heads.shape[1] - n_tail :], logits.device), upload(rules.lasts, logits.device)
    is_possible = upload(rules.n_heads <= n_tail, logits.device)
    is_next = ((heads == tail) | (heads == ANY_TOKEN)).all(1) & is_possible
    logits.index_add_(0, lasts, torch.where(is_next, float("-inf"), 0.0).to(logits.dtype))


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Step 2: [S] int64. logits: [S, vocabulary]. On a CPU numpy's argmax is several times as fast as torch's."""
    return logits.argmax(-1) if logits.is_cuda else torch.from_numpy(logits.numpy().argmax(-1))


def _penalise(logits: torch.Tensor, rows: SamplingRows, row: int, tokens: torch.Tensor) -> None:
    """The penalties of step 1 for one row, in place. logits [vocabulary]."""
    known = tokens[int(rows.slots[row]), : int(rows.positions[row])].to(torch.int64)
    repetition = float(rows.repetition[row])
    if repetition != 1.0:
        occurring = logits[known]
        logits[known] = torch.where(occurring > 0, occurring / repetition, occurring * repetition)
    frequency, presence = float(rows.frequency[row]), float(rows.presence[row])
    if frequency or presence:
        output = known[int(rows.n_prompt[row]) :]
        counts = torch.zeros_like(logits).index_add_(0, output, torch.ones_like(output, dtype=logits.dtype))[output]
        logits[output] -= counts * frequency + presence  # where ids repeat, the values are equal


def _sample_random(logits: torch.Tensor, rows: SamplingRows, index: np.ndarray, noise: np.ndarray) -> torch.Tensor:
    """Steps 3 to 7: [N] int64. logits: [N, vocabulary] float32 of the rows `index` [N]; noise: [N] float32, on the host."""
    top_k, top_p, min_p = rows.top_k[index], rows.top_p[index], rows.min_p[index]
    temperature, u = (column[:, None] for column in upload_together((rows.temperature[index], noise), logits.device))
    p = torch.softmax(logits / temperature, -1)
    if min_p.any():
        p = torch.where(p >= p.amax(-1, keepdim=True) * upload(min_p, p.device)[:, None], p, 0.0)
    if top_k.any() or (top_p < 1).any():
        least = least_kept_sorted(p, top_k, top_p) if p.is_cuda else least_kept_by_row(p, top_k, top_p)
        p = torch.where(p >= least, p, 0.0)
    return pick(p, u)


def pick(p: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Step 7: [N] int64. First the block of ids is found, then the id in it. p: [N, vocabulary], noise: [N, 1], float32.

    Running sums are float64: in float32 a parallel sum may fall over tokens that are removed."""
    if p.shape[-1] % _BLOCK:
        p = torch.nn.functional.pad(p, (0, -p.shape[-1] % _BLOCK))
    blocks = p.view(p.shape[0], -1, _BLOCK)
    sums = blocks.sum(-1).cumsum(-1, dtype=torch.float64)
    target = noise * sums[:, -1:]
    block = _first_above(sums, target)
    target = target - torch.where(block > 0, sums.gather(-1, (block - 1).clamp_(min=0)), 0.0)
    inner = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1).cumsum(-1, dtype=torch.float64)
    return (block * _BLOCK + _first_above(inner, target)).squeeze(-1)


def _first_above(sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """[N, 1] int64: index of the first of rising sums [N, n] that is above target [N, 1]; at most the last that rises."""
    whole = sums[:, -1:].contiguous()
    return torch.minimum(torch.searchsorted(sums, target, right=True), torch.searchsorted(sums, whole))


def least_kept_sorted(p: torch.Tensor, top_k: np.ndarray, top_p: np.ndarray) -> torch.Tensor:
    """Top_k and top_p as a threshold [N, 1]: the probability of the least probable token that stays.

    p: [N, vocabulary] float; top_k, top_p: [N] on the host. Sorts the vocabulary, which is fast on a GPU and gives the same
    order on every rank.
    """
    device, vocabulary = p.device, p.shape[-1]
    falling = p.sort(-1, descending=True).values
    last = upload(np.where(top_k > 0, np.minimum(top_k, vocabulary), vocabulary) - 1, device)[:, None]
    least = falling.gather(-1, last)
    sums = torch.where(falling >= least, falling, 0.0).cumsum(-1, dtype=torch.float64)
    share = upload(top_p.astype(np.float64), device)[:, None]
    enough = torch.searchsorted(sums, sums[:, -1:] * share).clamp_(max=vocabulary - 1)
    return torch.where(share < 1, falling.gather(-1, enough), least)


def least_kept_by_row(p: torch.Tensor, top_k: np.ndarray, top_p: np.ndarray) -> torch.Tensor:
    """As `least_kept_sorted`, for p on a CPU and without sorting, which would take longer than the model's step."""
    values = p.numpy()
    found = [_least_of_row(values[row], int(top_k[row]), float(top_p[row])) for row in range(len(values))]
    return torch.tensor(found, dtype=torch.float32)[:, None]


def _least_of_row(p: np.ndarray, top_k: int, top_p: float) -> float:
    """The threshold of one row p [vocabulary] float32. For top_p it finds the bin of probabilities in which the needed mass
    is reached, and sorts only that bin."""
    if 0 < top_k < len(p):
        least = np.partition(p, len(p) - top_k)[len(p) - top_k]
        p = p[p >= least]
    if top_p >= 1:
        return float(p.min()) if top_k > 0 else 0.0
    needed = p.sum(dtype=np.float64) * top_p
    bins = p.view(np.int32) >> _BIN_BITS  # the leading bits of positive floats are in the order of the floats
    masses = np.bincount(bins, weights=p)[::-1].cumsum()
    edge = len(masses) - 1 - int(np.searchsorted(masses, needed))
    falling = np.sort(p[bins == edge])[::-1]
    above = masses[len(masses) - 2 - edge] if edge < len(masses) - 1 else 0.0
    enough = int(np.searchsorted(falling.cumsum(dtype=np.float64) + above, needed))
    return float(falling[min(enough, len(falling) - 1)])
