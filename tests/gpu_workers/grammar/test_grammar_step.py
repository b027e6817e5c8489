"""The masks of a step are those of the tokens before it, whether or not they were computed ahead."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from gpu_workers.engine import PlanRefused
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from gpu_workers.sampling.masked_logits import MaskedSamples
from messages.generation.sampling import Sampling
from messages.steps import NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s
from tests.support.workers.grammar.grammar_runs import OBJECT
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer, write_tokenizer
from tests.support.workers.tiny_model import TINY

_NO_DRAFTS = EMPTY_I32
_TEXT = '{"ok":true,"n":22,"s":"ab"}'
_N_TOKENS = len(tiny_tokenizer().encode(_TEXT).ids)
_PROMPT = 3


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> GrammarVocabulary:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return GrammarVocabulary(folder / "tokenizer.json", TINY["vocab_size"])


def table_of(vocabulary: GrammarVocabulary) -> GrammarTable:
    """A table whose slot 2 follows a grammar, with a prompt of three tokens."""
    table = GrammarTable(vocabulary)
    new = NewSequence(slot=2, n_tokens=_PROMPT, n_prompt=_PROMPT, sampling=Sampling(), grammar=OBJECT, end_tokens=[END])
    table.enter(
        Plan(
            epoch=0, step=0, n_steps=1, new=[new], new_tokens=int32s([0] * _PROMPT), page_slots=EMPTY_I32,
            page_indices=EMPTY_I32, page_ids=EMPTY_I32, row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32,
            row_samples=EMPTY_I32,
        )
    )  # fmt: skip
    return table


def allowed(masks: np.ndarray) -> list[set[int]]:
    """The tokens that each mask allows."""
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    return [set(np.flatnonzero(row).tolist()) for row in bits]


def mask_after(table: GrammarTable, ids: list[int], looks_ahead: bool) -> set[int]:
    """The tokens that may follow these, which are sampled one by one."""
    slots, one = np.array([2]), np.ones(1, np.int64)
    for n in range(len(ids) + 1):
        step = table.step(slots, one, np.array([_PROMPT + n]), _NO_DRAFTS)
        assert step is not None
        (mask,) = allowed(step.masks().masks)
        if n == len(ids):
            return mask
        assert ids[n] in mask
        step.report(one, np.array(ids[n : n + 1]))
        if looks_ahead:
            step.look_ahead()
    raise AssertionError


@pytest.mark.parametrize("n", range(_N_TOKENS + 1))
def test_masks_that_are_computed_ahead_are_the_same(vocabulary: GrammarVocabulary, n: int) -> None:
    ids = tiny_tokenizer().encode(_TEXT).ids[:n]
    ahead, at_once = (mask_after(table_of(vocabulary), ids, looks_ahead) for looks_ahead in (True, False))
    assert ahead == at_once


@pytest.mark.parametrize("n", range(1, _N_TOKENS))
def test_forced_tokens_that_come_as_drafts_change_no_mask(vocabulary: GrammarVocabulary, n: int) -> None:
    ids = tiny_tokenizer().encode(_TEXT).ids
    table, expected = (
        table_of(vocabulary),
        [mask_after(table_of(vocabulary), ids[:place], False) for place in range(n, len(ids) + 1)],
    )
    mask_after(table, ids[: n - 1], False)
    first = table.step(np.array([2]), np.ones(1, np.int64), np.array([_PROMPT + n - 1]), _NO_DRAFTS)
    assert first is not None
    report = first.report(np.ones(1, np.int64), np.array(ids[n - 1 : n]))
    forced = [] if report is None else report.ids.tolist()
    assert forced == ids[n : n + len(forced)]
    first.look_ahead()
    width = len(forced) + 1
    step = table.step(np.array([2]), np.array([width]), np.arange(width) + _PROMPT + n, int32s(forced))
    assert step is not None
    samples = step.masks()
    assert samples.drafts.tolist() == [0, *forced]
    assert allowed(samples.masks) == expected[:width]


def test_each_draft_has_a_mask_of_its_own(vocabulary: GrammarVocabulary) -> None:
    ids = tiny_tokenizer().encode(_TEXT).ids
    n = len(ids) + 1
    step = table_of(vocabulary).step(np.array([0, 2]), np.array([1, n]), np.arange(-1, n) + _PROMPT, int32s(ids))
    assert step is not None
    samples = step.masks()
    assert samples.index.tolist() == [*range(1, n + 1)]
    assert set(samples.slots.tolist()) == {2}
    assert samples.positions.tolist() == [_PROMPT + index for index in range(n)]
    assert samples.drafts[1:].tolist() == ids
    masks = allowed(samples.masks)
    assert all(token in mask for token, mask in zip(ids, masks, strict=False))
    assert masks[-1] == {END}
    assert END not in masks[0]


def test_drafts_that_break_the_grammar_cost_nothing_but_themselves(vocabulary: GrammarVocabulary) -> None:
    ids, table = tiny_tokenizer().encode(_TEXT).ids, table_of(vocabulary)
    step = table.step(np.array([2]), np.array([3]), np.arange(3) + _PROMPT, int32s([ids[0], END + 1]))
    assert step is not None
    masks = allowed(step.masks().masks)
    assert masks[:2] == [mask_after(table_of(vocabulary), ids[:n], False) for n in (0, 1)]
    assert masks[2], "the sample after a wrong draft is dropped, but it must be one"
    step.report(np.array([2]), np.array(ids[:2]))
    after = table.step(np.array([2]), np.ones(1, np.int64), np.array([_PROMPT + 2]), _NO_DRAFTS)
    assert after is not None
    assert allowed(after.masks().masks) == [mask_after(table_of(vocabulary), ids[:2], False)]


def test_a_step_waits_until_the_tokens_before_it_are_told(vocabulary: GrammarVocabulary) -> None:
    ids, table, one = tiny_tokenizer().encode(_TEXT).ids, table_of(vocabulary), np.ones(1, np.int64)
    first, second = (table.step(np.array([2]), one, np.array([_PROMPT + n]), _NO_DRAFTS) for n in (0, 1))
    assert first is not None
    assert second is not None
    given, is_given = list[set[int]](), threading.Event()

    def deliver(samples: MaskedSamples) -> None:
        given.extend(allowed(samples.masks))
        is_given.set()

    second.promise(lambda n, n_words: np.empty((n, n_words), np.int32), deliver)
    early = threading.Thread(target=second.give)
    early.start()
    first.masks()
    assert not is_given.is_set()
    first.report(one, np.array(ids[:1]))
    early.join(60.0)
    assert given == [mask_after(table_of(vocabulary), ids[:1], False)]
    second.give()
    assert len(given) == 1


def test_rows_without_grammars_have_no_masks(vocabulary: GrammarVocabulary) -> None:
    assert table_of(vocabulary).step(np.array([0, 1]), np.ones(2, np.int64), np.array([5, 5]), _NO_DRAFTS) is None


def test_a_plan_of_several_steps_is_refused_where_a_row_has_a_grammar(vocabulary: GrammarVocabulary) -> None:
    plan = Plan(
        epoch=0, step=0, n_steps=2, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=int32s([1, 2]), row_starts=int32s([9, 9]), row_counts=int32s([1, 1]),
        row_samples=int32s([1, 1]),
    )  # fmt: skip
    with pytest.raises(PlanRefused, match="n_steps: expected 1 for rows that follow a grammar, got 2") as refusal:
        table_of(vocabulary).check(plan)
    assert list(refusal.value.suspects) == [2]
