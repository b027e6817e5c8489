"""Biases, allowed tokens and bad words against a plain rendering of the rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.batch.slot_rules import SlotRules
from gpu_workers.sampling.sampler import edit_logits, sample_tokens
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms
from messages.steps import NewSequence, TokenRules
from tests.support.depth import examples

_VOCABULARY, _PROMPT = 12, 3
_IDS = st.integers(0, _VOCABULARY - 1)


def table_of(rules: list[TokenRules | None], sampling: Sampling) -> SamplingTable:
    table = SamplingTable(len(rules))
    for slot, some in enumerate(rules):
        table.put(NewSequence(slot=slot, n_tokens=_PROMPT, n_prompt=_PROMPT, sampling=sampling, rules=some))
    return table


def plainly(logits: np.ndarray, rules: TokenRules, output: list[int]) -> np.ndarray:
    """The logits of one row after the rules, token by token."""
    changed = logits.copy()
    for token in range(len(logits)):
        changed[token] += np.float32(dict(zip(rules.biased, rules.biases, strict=True)).get(token, 0.0))
        is_next = any(bad[-1] == token and output[len(output) - len(bad) + 1 :] == bad[:-1] for bad in rules.bad)
        if is_next or (rules.allowed is not None and token not in rules.allowed):
            changed[token] = -np.inf
    return changed


@st.composite
def any_rules(draw: st.DrawFn) -> TokenRules:
    biased = draw(st.lists(_IDS, unique=True, max_size=5))
    biases = [draw(st.sampled_from([-100.0, -1.5, 0.0, 2.0, 100.0])) for _ in biased]
    allowed = draw(st.none() | st.lists(_IDS, min_size=1, max_size=8))
    bad = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=4))
    return TokenRules(biased=biased, biases=biases, allowed=allowed, bad=bad)


@given(rules=any_rules(), output=st.lists(st.integers(0, 3), max_size=6), seed=st.integers(0, 99))
@examples(60)
def test_logits_are_those_of_the_rule(rules: TokenRules, output: list[int], seed: int) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, _VOCABULARY)).astype(np.float32))
    position = _PROMPT + len(output)
    tokens = torch.tensor([[1, 2, 3, *output, 0, 1, 2]] * 2, dtype=torch.int32)  # bad words do not begin in the prompt
    rows = table_of([rules, None], Sampling(temperature=0.0)).gather(np.arange(2), np.full(2, position))
    edited = edit_logits(logits, rows, tokens)
    wanted = plainly(logits[0].numpy(), rules, output)
    assert edited[0].tolist() == wanted.tolist()
    assert edited[1].equal(logits[1])
    forbidden = SlotRules.of(rules).forbidden_after(np.array(output, np.int64), _VOCABULARY)
    assert forbidden.tolist() == np.isneginf(wanted).tolist()


def test_biases_come_before_penalties_and_bans_after() -> None:
    rules = TokenRules(biased=[1, 2], biases=[3.0, 50.0])
    table = SamplingTable(1)
    sampling = Sampling(temperature=0.0, repetition_penalty=2.0)
    terms = RankTerms(min_tokens=9, stop_tokens=[2])
    table.put(NewSequence(slot=0, n_tokens=1, n_prompt=1, sampling=sampling, terms=terms, rules=rules))
    edited = edit_logits(
        torch.tensor([[0.0, -1.0, 5.0]]), table.gather(np.zeros(1, np.int64), np.ones(1, np.int64)), torch.tensor([[1]])
    )
    assert edited.tolist() == [[0.0, 1.0, -np.inf]]  # (-1 + 3) / 2: the penalty sees the sign of the biased logit


@pytest.mark.parametrize(
    "rules",
    [
        TokenRules(biased=[0, 4], biases=[-1.0, 2.0]),
        TokenRules(allowed=[1, 2, 4]),
        TokenRules(bad=[[0], [3]]),
        TokenRules(biased=[2], biases=[1.0], allowed=[2, 3, 4], bad=[[4]]),
    ],
)
def test_drawn_frequencies_follow_the_rules(rules: TokenRules) -> None:
    n = 4000
    log_p = np.log([0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.float32)
    rows = table_of([rules], Sampling(temperature=1.0, seed=3)).gather(np.zeros(n, np.int64), np.arange(_PROMPT, n + _PROMPT))
    drawn = sample_tokens(torch.from_numpy(log_p).expand(n, 5), rows, torch.full((1, n + _PROMPT), 1))
    weights = np.exp(plainly(log_p, rules, []))
    expected, counts = weights / weights.sum() * n, np.bincount(drawn.numpy(), minlength=5)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    assert ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum() < 18.5  # at most 4 degrees, p = 0.001


def test_the_next_sequence_of_a_slot_has_no_rules_of_the_last_one() -> None:
    table = table_of([TokenRules(allowed=[1])], Sampling(temperature=0.0))
    assert table.is_edited(np.zeros(1, np.int64), np.full(1, 9)).all()
    table.put(NewSequence(slot=0, n_tokens=1, n_prompt=1, sampling=Sampling(temperature=0.0)))
    rows = table.gather(np.zeros(1, np.int64), np.full(1, 9))
    assert rows.rules_of(0) is None
    assert rows.is_all_greedy
