"""Drafts change neither a token nor the distribution."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.sampling.draft_verification import accept_drafts, emitted_indices
from gpu_workers.sampling.sampler import sample_tokens
from messages.generation.sampling import Sampling
from messages.steps import NewSequence

VOCABULARY = 6


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), min_size=7, max_size=7)), max_size=6
    )
)
def test_rule_row_by_row(cases: list[tuple[list[int], list[int]]]) -> None:
    drafts, samples, widths, expected = [], [], [], []
    for row_drafts, row_samples in cases:
        row_samples = row_samples[: len(row_drafts) + 1]
        n = 0
        while n < len(row_drafts) and row_drafts[n] == row_samples[n]:
            n += 1
        expected.append(row_samples[: n + 1])
        drafts += row_drafts
        samples += row_samples
        widths.append(len(row_samples))
    counts = accept_drafts(np.array(samples, np.int64), np.array(widths, np.int64), np.array(drafts, np.int64))
    assert counts.tolist() == [len(row) for row in expected]
    emitted = emitted_indices(np.array(widths, np.int64), counts)
    assert [samples[i] for i in emitted] == [token for row in expected for token in row]


def test_distribution_of_two_tokens_is_that_of_the_model() -> None:
    """A toy model p(next | last), drafts that are right about half of the time: pairs occur as the model says."""
    logits = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(4))
    p = torch.softmax(logits, -1).numpy()
    n, start = 6000, 0
    table = SamplingTable(n)
    for slot in range(n):
        table.put(NewSequence(slot=slot, n_tokens=1, n_prompt=1, sampling=Sampling(temperature=1.0, seed=slot)))
    draft = int(p[start].argmax())
    slots, places = np.repeat(np.arange(n), 2), np.tile([1, 2], n)
    both = logits[torch.tensor([start, draft])].repeat(n, 1)
    samples = sample_tokens(both, table.gather(slots, places), torch.zeros(n, 1)).numpy()
    counts = accept_drafts(samples, np.full(n, 2), np.full(n, draft))
    assert 0.2 < (counts == 2).mean() < 0.8
    first = samples[::2]
    alone = sample_tokens(logits[torch.from_numpy(first)], table.gather(np.arange(n), np.full(n, 2)), torch.zeros(n, 1)).numpy()
    second = np.where(counts == 2, samples[1::2], alone)
    assert (second == alone).all()  # token for token what single steps sample
    observed = np.zeros((VOCABULARY, VOCABULARY))
    np.add.at(observed, (first, second), 1)
    expected = n * p[start][:, None] * p
    assert ((observed - expected) ** 2 / expected).sum() < 66.6  # chi-square, 35 degrees, p = 0.001
