"""The sampling rule, step by step, against a plain rendering of it; and its noise against published answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.sampling_table import SamplingRows, SamplingTable, temperature_of
from gpu_workers.sampling.sampler import least_kept_by_row, least_kept_sorted, philox, position_noise, sample_tokens
from messages.generation.sampling import Sampling
from messages.steps import NewSequence
from tests.support.depth import examples


def rows(samplings: list[Sampling], positions: list[int], n_prompt: int = 0) -> SamplingRows:
    table = SamplingTable(len(samplings))
    for slot, sampling in enumerate(samplings):
        table.put(NewSequence(slot=slot, n_tokens=n_prompt, n_prompt=n_prompt, sampling=sampling))
    return table.gather(np.arange(len(samplings)), np.array(positions))


def plainly(logits: np.ndarray, sampling: Sampling, position: int) -> int:
    """Steps 2 to 7 for one row, by sorting."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    z = torch.softmax(torch.from_numpy(logits) / float(np.float32(sampling.temperature)), -1).numpy().astype(np.float64)
    z[z < np.float32(z.max()) * np.float32(sampling.min_p)] = 0
    if sampling.top_k:
        z[z < np.sort(z)[::-1][min(sampling.top_k, len(z)) - 1]] = 0
    if sampling.top_p < 1:
        falling = np.sort(z)[::-1]
        z[z < falling[np.searchsorted(falling.cumsum(), z.sum() * np.float32(sampling.top_p))]] = 0
    u = float(position_noise(np.array([sampling.seed]), np.array([position]))[0])
    return int(np.searchsorted(z.cumsum(), u * z.sum(), side="right"))


def test_philox_gives_the_published_answers() -> None:
    known = np.array([0, 2**64 - 1], np.uint64)
    # Random123's known-answer file: key and counter all zero. With a counter of two words the other two stay zero.
    assert philox(known[:1], known[:1])[0] == 0x6627E8D5


def test_philox_agrees_with_plain_integers() -> None:
    def plain(key: int, counter: int) -> int:
        k = [key & 0xFFFFFFFF, key >> 32]
        c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        return c[0]

    rng = np.random.default_rng(0)
    keys, counters = rng.integers(0, 2**63, 200), rng.integers(0, 2**20, 200)
    assert philox(keys, counters).tolist() == [plain(int(k), int(c)) for k, c in zip(keys, counters, strict=True)]


def test_noise_is_uniform_over_positions_and_over_seeds() -> None:
    for u in (position_noise(np.full(20_000, 7), np.arange(20_000)), position_noise(np.arange(20_000), np.full(20_000, 7))):
        assert 0 <= u.min() < 0.001
        assert 0.999 < u.max() < 1
        counts = np.histogram(u, 20, (0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square, 19 degrees, p = 0.001


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 50, 10_000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)


@given(samplings=st.lists(SAMPLINGS, min_size=1, max_size=8), seed=st.integers(0, 1000), spread=st.sampled_from([0.1, 3.0]))
@examples(150)
def test_every_mixture_follows_the_rule(samplings: list[Sampling], seed: int, spread: float) -> None:
    logits = torch.randn(len(samplings), 600, generator=torch.Generator().manual_seed(seed)) * spread
    positions = [seed + i for i in range(len(samplings))]
    got = sample_tokens(logits, rows(samplings, positions), torch.zeros(len(samplings), 1)).tolist()
    assert got == [plainly(logits[i].numpy(), s, positions[i]) for i, s in enumerate(samplings)]


def test_a_row_does_not_depend_on_its_batch() -> None:
    samplings = [Sampling(temperature=0.9, top_p=0.8, seed=i) for i in range(6)] + [Sampling(temperature=0.0)]
    logits = torch.randn(7, 1000, generator=torch.Generator().manual_seed(2))
    together = sample_tokens(logits, rows(samplings, list(range(7))), torch.zeros(7, 1)).tolist()
    for i, sampling in enumerate(samplings):
        assert sample_tokens(logits[i : i + 1], rows([sampling], [i]), torch.zeros(1, 1)).tolist() == [together[i]]


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    logits = torch.zeros(1, 50)
    logits[0, [7, 30]] = 2.0
    assert sample_tokens(logits, rows([Sampling(temperature=0.0)], [0]), torch.zeros(1, 1)).tolist() == [7]


def test_equal_tokens_at_the_edge_all_stay() -> None:
    logits = torch.zeros(1, 8)
    drawn = {
        int(sample_tokens(logits, rows([Sampling(temperature=1.0, top_k=1, seed=s)], [0]), torch.zeros(1, 1))[0])
        for s in range(200)
    }
    assert drawn == set(range(8))


def test_drawn_frequencies_follow_the_distribution() -> None:
    n = 4000
    p = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05])
    samplings = [Sampling(temperature=1.0, seed=9)] * n
    drawn = sample_tokens(p.log().expand(n, 5), rows(samplings, list(range(n))), torch.zeros(n, 1))
    expected = p.numpy() * n
    assert ((np.bincount(drawn.numpy(), minlength=5) - expected) ** 2 / expected).sum() < 18.5  # 4 degrees, p = 0.001


def test_drawn_frequencies_follow_min_p() -> None:
    n = 4000
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    samplings = [Sampling(temperature=2.0, min_p=0.5, seed=3)] * n
    drawn = sample_tokens(torch.from_numpy(np.log(p)).float().expand(n, 5), rows(samplings, list(range(n))), torch.zeros(n, 1))
    flat = p**0.5
    kept = np.where(flat >= 0.5 * flat.max(), flat, 0.0)  # after the temperature: 0.15 stays, which it would not before
    expected = kept / kept.sum() * n
    counts = np.bincount(drawn.numpy(), minlength=5)
    assert (expected > 0).tolist() == [True, True, True, False, False]
    assert counts[3:].sum() == 0
    assert ((counts[:3] - expected[:3]) ** 2 / expected[:3]).sum() < 13.8  # 2 degrees, p = 0.001


def test_min_p_of_one_leaves_the_greatest_and_its_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.999, 3.0]])
    drawn = {
        int(sample_tokens(logits, rows([Sampling(temperature=0.37, min_p=1.0, seed=s)], [0]), torch.zeros(1, 1))[0])
        for s in range(100)
    }
    assert drawn == {1, 3}


def test_penalties_are_those_of_the_rule() -> None:
    tokens = torch.tensor([[1, 2, 2, 3, 3, 3, 9, 9]], dtype=torch.int32)
    logits = torch.tensor([[0.0, 3.0, 2.9, 2.8, -1.0, 0.5, 0.4, 0.3, 0.2, 9.0]])
    seen = Sampling(temperature=0.0, repetition_penalty=2.0)
    assert sample_tokens(logits, rows([seen], [6], n_prompt=2), tokens).tolist() == [9]  # 9 stands behind the position
    logits[0, 9] = -5.0
    assert sample_tokens(logits, rows([seen], [6], n_prompt=2), tokens).tolist() == [1]  # 3 / 2 is still the greatest
    counted = Sampling(temperature=0.0, frequency_penalty=0.1, presence_penalty=0.0)
    assert sample_tokens(logits, rows([counted], [6], n_prompt=2), tokens).tolist() == [1]  # in the prompt only: free
    logits[0, 1] = 2.85
    assert sample_tokens(logits, rows([counted], [6], n_prompt=2), tokens).tolist() == [1]  # 2.9 - 0.1 and 2.8 - 0.3
    logits[0, 5] = 0.95  # above 2.9 - 2.0
    there = Sampling(temperature=0.0, presence_penalty=2.0)
    assert sample_tokens(logits, rows([there], [6], n_prompt=0), tokens).tolist() == [5]
    assert logits[0, 1] == pytest.approx(2.85)  # the caller's logits are left alone


@given(
    k=st.sampled_from([0, 1, 2, 50, 599, 600, 10_000]),
    share=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 0.1, 3.0, 40.0]),
)
@examples(200)
def test_both_ways_to_the_threshold_agree(k: int, share: float, seed: int, spread: float) -> None:
    p = torch.softmax(torch.randn(2, 600, generator=torch.Generator().manual_seed(seed)) * spread, -1)
    top_k, top_p = np.array([k, 0]), np.array([share, share], np.float32)
    sorted_way, row_way = least_kept_sorted(p, top_k, top_p), least_kept_by_row(p, top_k, top_p)
    assert ((p >= sorted_way) == (p >= row_way)).all()


def test_colder_than_float32_can_divide_is_greedy() -> None:
    assert temperature_of(Sampling(temperature=1e-38)) == 0.0
    assert temperature_of(Sampling(temperature=1e-4)) == 1e-4
