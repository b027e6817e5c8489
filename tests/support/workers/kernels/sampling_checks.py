"""Penalties, bans and filters in the sampling kernels against the reference; plain functions as in kernel_checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState, allocate_device_state
from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.cuda.kernels.sampling.logits import IN_PROMPT, OUTPUT_COUNT
from gpu_workers.cuda.kernels.sampling.sample import SamplingScratch, sample_rows
from gpu_workers.graphs.mask_upload import MaskUpload
from gpu_workers.graphs.token_counts import TokenCounts
from gpu_workers.sampling.masked_logits import MaskedSamples, mask_logits
from gpu_workers.sampling.sampler import sample_tokens
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms
from messages.steps import NewSequence, TokenRules
from tests.support.workers.kernels.kernel_checks import Check, column_of

_EDITED = (
    Sampling(temperature=0.0, repetition_penalty=1.3),
    Sampling(temperature=0.0, frequency_penalty=0.4, presence_penalty=-0.7),
    Sampling(temperature=0.9, repetition_penalty=0.8, presence_penalty=0.5, seed=3),
    Sampling(temperature=1.1, top_k=20, top_p=0.8, repetition_penalty=1.1, seed=4),
    Sampling(temperature=0.8, min_p=0.05, frequency_penalty=1.5, seed=5),
    Sampling(temperature=0.0),
    Sampling(temperature=1.0, seed=6),
)
_RULES = (
    TokenRules(biased=[3, 4, 39, 2999], biases=[6.0, -100.0, 5.5, 9.0]),
    TokenRules(allowed=[*range(0, 60, 2), 2100], biased=[2, 5, 2100], biases=[2.0, 50.0, 7.0], bad=[[4], [6]]),
    TokenRules(bad=[[token] for token in range(10, 30)]),
    TokenRules(allowed=[38, 7, 2998]),
    TokenRules(biased=[*range(1000)], biases=[token / 100 for token in range(1000)]),
)
_VOCABULARY = 3000
_MOST_FREE_OF_ROUNDING = 1e-5  # relative difference of two float32 sums over a vocabulary


@dataclass(frozen=True)
class Filter:
    """One case: the filters of a row, and how far its logits lie apart."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    spread: float = 3.0
    temperature: float = 0.8


FILTERS = (
    Filter(top_k=20, top_p=0.8), Filter(top_k=1), Filter(top_k=50), Filter(top_k=128, top_p=0.95), Filter(top_k=4999),
    Filter(top_k=1000, top_p=0.5), Filter(top_k=10**6, top_p=0.9), Filter(top_p=0.9), Filter(top_p=0.9, spread=0.01),
    Filter(top_p=0.999), Filter(top_p=1e-6), Filter(top_p=0.95, spread=12.0), Filter(min_p=0.05), Filter(min_p=1.0),
    Filter(min_p=1e-9), Filter(min_p=0.02, top_p=0.7), Filter(min_p=0.3, top_k=40, top_p=0.99), Filter(top_k=40, spread=0.0),
    Filter(top_k=20, top_p=0.8, spread=0.3), Filter(top_p=0.7, spread=0.0), Filter(top_k=3, temperature=1.9, spread=30.0),
)  # fmt: skip


def check_filters(device: torch.device, dtype: torch.dtype) -> None:
    """The tokens that stay are those of the rule, whether the threshold is found in a few groups or by walks."""
    for vocabulary in (3000, 5000, 128_256) if device.type == "cuda" else (3000, 5000):
        n = len(FILTERS)
        state = _state_of([Sampling(temperature=f.temperature, seed=7) for f in FILTERS], device)
        for name in ("top_k", "top_p", "min_p"):
            column = column_of(state, name)
            column[:n] = torch.tensor([getattr(f, name) for f in FILTERS], device=device).to(column.dtype)
        spreads = torch.tensor([f.spread for f in FILTERS], device=device)[:, None]
        logits = (torch.randn(n, vocabulary, device=device) * spreads - 2.0).to(dtype)
        scratch = SamplingScratch.allocate(n, vocabulary, device)
        slots, ids = torch.arange(n, device=device), torch.zeros(n, dtype=torch.int64, device=device)
        sample_rows(logits, slots, torch.full_like(slots, 8), state, ids, advance=False, scratch=scratch)
        least, codes = scratch.least.cpu().numpy()[:, None], _codes(logits.float().cpu().numpy())
        for row, case in enumerate(FILTERS):
            stays = codes[row] >= least[row]
            fewest, most = (_kept(logits[row], case, sign) for sign in (-1, 1))
            assert (fewest <= stays).all(), f"{case}: keeps {stays.sum()}, expected at least {fewest.sum()}"
            assert (stays <= most).all(), f"{case}: keeps {stays.sum()}, expected at most {most.sum()}"
            assert stays[int(ids[row])]


def _kept(logits: torch.Tensor, case: Filter, sign: int) -> np.ndarray:
    """[vocabulary] bool by the rule in float64, with bounds moved by what rounding may do; sign 1: more may stay."""
    slack = sign * _MOST_FREE_OF_ROUNDING
    z = logits.double().cpu().numpy() / case.temperature
    p = np.exp(z - z.max())
    p[p < case.min_p * (1 - slack)] = 0.0
    if 0 < case.top_k < len(p):
        p[p < np.sort(p)[-case.top_k]] = 0.0
    if case.top_p < 1:
        falling = np.sort(p)[::-1]
        enough = np.searchsorted(falling.cumsum(), falling.sum() * case.top_p * (1 + slack))
        p[p < falling[min(int(enough), len(p) - 1)]] = 0.0
    return p > 0


def _codes(x: np.ndarray) -> np.ndarray:
    """`code_of` in numpy."""
    bits = x.view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def check_penalties(device: torch.device, dtype: torch.dtype) -> None:
    """Several steps choose what the reference chooses, with penalties, bans that end, and rows that have none of them; then a
    sequence takes another one's slot, and tokens change behind the back of the captured steps."""
    n = len(_EDITED)
    state, table = _state_of(_EDITED, device), SamplingTable(n)
    counts = TokenCounts(state, _VOCABULARY)
    slots = np.arange(n)[::-1].copy()
    positions = np.array([9, 40, 700, 33, 5, 60, 21])  # of the next tokens
    state.tokens[:n] = torch.randint(0, 40, state.tokens[:n].shape, device=device, dtype=torch.int32)  # often the same ones
    for round_number in range(3):
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
            banned, has_rules = slot % 2 == round_number % 2, slot % 3 != round_number
            _enter(state, table, slot, position, _EDITED[(slot + round_number) % n], banned, has_rules)
        counts.invalidate(slots)
        _compare_steps(state, table, counts, slots, positions, dtype)
        positions = positions + 3
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
            state.tokens[slot, position : position + 5] = slot  # accepted drafts, say
        positions = positions + 5
        _compare_steps(state, table, counts, slots, positions, dtype)
        positions = positions + 3


def _compare_steps(
    state: DeviceState, table: SamplingTable, counts: TokenCounts, slots: np.ndarray, positions: np.ndarray, dtype: torch.dtype
) -> None:
    """Three steps of the kernels, each beside the reference. positions: of the first tokens that are sampled."""
    device, n = state.device, len(slots)
    on_device, places = torch.from_numpy(slots).to(device), torch.from_numpy(positions - 1).to(device)
    ids = torch.zeros(n, dtype=torch.int64, device=device)
    counts.prepare(slots, positions, 3, table)
    for step in range(3):
        _check_counts(state, table, counts, slots, positions + step)
        logits = (torch.randn(n, _VOCABULARY, device=device) * 2).to(dtype)
        logits[:, :40] += 4  # the tokens that occur are probable, so that penalties and bans decide
        wanted = sample_tokens(logits.float(), table.gather(slots, positions + step), state.tokens)
        before = logits.clone()
        sample_rows(logits, on_device, places, state, ids, advance=True, counts=counts.values)
        assert ids.tolist() == wanted.tolist(), f"step {step}"
        assert logits.equal(before)
        assert state.tokens[on_device, places].tolist() == ids.tolist()


def _check_counts(
    state: DeviceState, table: SamplingTable, counts: TokenCounts, slots: np.ndarray, positions: np.ndarray
) -> None:
    """The counts of rows with penalties are those of the slot's tokens."""
    rows, tokens = table.gather(slots, positions), state.tokens.cpu().numpy()
    for row in np.flatnonzero(rows.is_edited):
        slot, n_prompt, known = int(slots[row]), int(rows.n_prompt[row]), int(positions[row])
        in_prompt = np.bincount(tokens[slot, : min(n_prompt, known)], minlength=_VOCABULARY) > 0
        wanted = np.bincount(tokens[slot, n_prompt:known], minlength=_VOCABULARY) + (in_prompt << 30)
        kept = OUTPUT_COUNT.value | IN_PROMPT.value
        assert (counts.values[slot, :_VOCABULARY].cpu().numpy() & kept).tolist() == wanted.tolist(), f"slot {slot}"


def _enter(
    state: DeviceState,
    table: SamplingTable,
    slot: int,
    n_tokens: int,
    sampling: Sampling,
    banned: bool,
    has_rules: bool = False,
    grammar: str = "",
) -> None:
    new = NewSequence(
        slot=slot, n_tokens=n_tokens, n_prompt=max(1, n_tokens // 2), sampling=sampling,
        terms=RankTerms(min_tokens=n_tokens - n_tokens // 2 + 1, stop_tokens=[*range(0, 40, 3), 0]) if banned else RankTerms(),
        rules=_RULES[slot % len(_RULES)] if has_rules else None, grammar=grammar,
    )  # fmt: skip
    table.put(new)
    row = table.values_of(np.array([slot])).view(np.int64)
    state.sampling[slot] = torch.from_numpy(row).to(state.device)


def _state_of(samplings: tuple[Sampling, ...] | list[Sampling], device: torch.device) -> DeviceState:
    """A slot for each of them, with a prompt of nine zeros."""
    state = allocate_device_state(len(samplings), 800, 4, device)
    table = SamplingTable(len(samplings))
    for slot, sampling in enumerate(samplings):
        _enter(state, table, slot, 9, sampling, banned=False)
    return state


def check_drafts(device: torch.device, dtype: torch.dtype) -> None:
    """Samples after drafts count these drafts, and leave the counts of their slot alone; rows without drafts count as ever."""
    widths = np.array([4, 1, 3, 1, 2, 1, 1])
    state, table = _state_of(_EDITED, device), SamplingTable(len(widths))
    counts = TokenCounts(state, _VOCABULARY)
    state.tokens[: len(widths)] = torch.randint(0, 40, state.tokens[: len(widths)].shape, device=device, dtype=torch.int32)
    for slot in range(len(widths)):
        _enter(state, table, slot, 9, _EDITED[slot], banned=slot % 2 == 0, has_rules=slot % 3 > 0)
    slots = np.repeat(np.arange(len(widths)), widths)
    first = np.cumsum(widths) - widths
    positions = 12 + np.arange(len(slots)) - np.repeat(first, widths)
    rows = table.gather(slots, positions)
    counts.prepare(slots[first], positions[first], 1, table)
    logits = (torch.randn(len(slots), _VOCABULARY, device=device) * 2).to(dtype)
    logits[:, :40] += 4
    wanted = sample_tokens(logits.float(), rows, state.tokens)
    on_device, places = torch.from_numpy(slots).to(device), torch.from_numpy(positions - 1).to(device)
    drafts, ids = state.tokens[on_device, places].long(), torch.zeros(len(slots), dtype=torch.int64, device=device)
    before = counts.values.clone()
    sample_rows(logits, on_device, places, state, ids, advance=True, counts=counts.values, drafts=drafts)
    assert ids.tolist() == wanted.tolist()
    for slot, width in enumerate(widths.tolist()):
        expected = before[slot].clone()
        if width == 1 and rows.is_edited[first[slot]]:
            expected[ids[first[slot]]] += 1
        assert counts.values[slot].equal(expected), f"slot {slot}"


def check_masks(device: torch.device, dtype: torch.dtype) -> None:
    """Rows with a grammar are left out with all that belongs to them, and then get the tokens of the reference, whatever their
    order, their sampling, their drafts and the width of a mask. Rows without one get theirs at once."""
    widths, extra = np.array([1, 3, 1, 1, 2, 1, 1]), np.array([0, 1, 34])  # ids of a mask beside the model's
    is_constrained = np.array([True, True, False, True, True, False, True])
    for round_number, n_extra in enumerate(extra.tolist()):
        state, table = _state_of(_EDITED, device), SamplingTable(len(widths))
        counts = TokenCounts(state, _VOCABULARY)
        state.tokens[: len(widths)] = torch.randint(0, 40, state.tokens[: len(widths)].shape, device=device, dtype=torch.int32)
        for slot in range(len(widths)):
            grammar = "of this slot" if is_constrained[slot] else ""
            sampling = _EDITED[(slot + round_number) % len(_EDITED)]
            _enter(state, table, slot, 9, sampling, banned=slot % 2 == 0, has_rules=slot % 3 > 0, grammar=grammar)
        slots = np.repeat(np.arange(len(widths)), widths)
        first = np.cumsum(widths) - widths
        positions = 12 + np.arange(len(slots)) - np.repeat(first, widths)
        counts.prepare(slots[first], positions[first], 1, table)
        samples = _random_masks(state, slots, positions, is_constrained, -(-(_VOCABULARY + n_extra) // 32))
        _check_masked(state, table, counts, slots, positions, samples, dtype)


def _random_masks(
    state: DeviceState, slots: np.ndarray, positions: np.ndarray, is_constrained: np.ndarray, n_words: int
) -> MaskedSamples:
    """Masks of all samples whose slots are constrained, the last slot first. The first mask allows one token alone."""
    samples = np.flatnonzero(is_constrained[slots])
    index = samples[np.argsort(-slots[samples], kind="stable")]
    masks = np.random.default_rng(n_words).integers(-(1 << 31), 1 << 31, (len(index), n_words)).astype(np.int32)
    masks[0], masks[0, 3] = 0, 1 << 9
    drafts = state.tokens.cpu().numpy()[slots[index], positions[index] - 1].astype(np.int64)
    return MaskedSamples(index, slots[index], positions[index], drafts, masks)


def _check_masked(
    state: DeviceState, table: SamplingTable, counts: TokenCounts, slots: np.ndarray, positions: np.ndarray,
    samples: MaskedSamples, dtype: torch.dtype,
) -> None:  # fmt: skip
    device, index = state.device, samples.index
    logits = (torch.randn(len(slots), _VOCABULARY, device=device) * 2).to(dtype)
    logits[:, :40] += 4
    before, scratch = logits.clone(), SamplingScratch.allocate(len(slots), _VOCABULARY, device)
    masked = mask_logits(logits.float().cpu(), samples, in_place=False).to(device)
    wanted = sample_tokens(masked, table.gather(slots, positions), state.tokens).tolist()
    on_device, places = torch.from_numpy(slots).to(device), torch.from_numpy(positions - 1).to(device)
    drafts, ids = state.tokens[on_device, places].long(), torch.full((len(slots),), -7, device=device)
    tokens, counted = state.tokens.clone(), counts.values.clone()
    sample_rows(
        logits, on_device, places, state, ids,
        advance=True, scratch=scratch, counts=counts.values, drafts=drafts, masks="later",
    )  # fmt: skip
    is_left = np.isin(np.arange(len(slots)), index)
    assert ids.tolist() == [-7 if left else token for left, token in zip(is_left, wanted, strict=True)]
    assert places.tolist() == (positions - is_left).tolist()
    constrained = torch.from_numpy(np.unique(slots[index])).to(device)
    assert state.tokens[constrained].equal(tokens[constrained])
    assert counts.values[constrained].equal(counted[constrained])
    upload = MaskUpload(len(slots) + 3, _VOCABULARY, state.n_slots, device)
    number, size = upload.expect(*samples.masks.shape)
    upload.give(number, samples)
    rows = upload.rows(size)
    sample_rows(
        logits, rows.slots, rows.positions, state, ids,
        advance=True, scratch=SamplingScratch.allocate(upload.most, _VOCABULARY, device), counts=counts.values,
        drafts=rows.drafts, masks=rows.masks,
    )  # fmt: skip
    assert ids.tolist() == wanted
    assert logits.equal(before)
    assert state.tokens.cpu().numpy()[slots, positions].tolist() == wanted
    for slot in constrained.tolist():
        expected, row = counted[slot].clone(), np.flatnonzero(slots == slot)
        if len(row) == 1 and table.is_edited(slots[row], positions[row]).any():
            expected[wanted[row[0]]] += 1
        assert counts.values[slot].equal(expected), f"slot {slot}"


SAMPLING_CHECKS: dict[str, Check] = {
    "filters": check_filters,
    "penalties": check_penalties,
    "drafts": check_drafts,
    "masks": check_masks,
}
