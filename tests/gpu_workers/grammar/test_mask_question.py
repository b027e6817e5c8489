"""Masks are asked for before a step is launched and computed while it runs; in between, the step before may be told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from messages.generation.sampling import Sampling
from messages.steps import NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s
from tests.support.workers.grammar.grammar_runs import OBJECT
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer, write_tokenizer
from tests.support.workers.tiny_model import TINY

_TEXT = '{"ok":true,"n":22,"s":"ab"}'
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


@pytest.mark.parametrize("n_told", [0, 1, 2])
def test_a_step_that_is_told_meanwhile_changes_no_mask(vocabulary: GrammarVocabulary, n_told: int) -> None:
    ids = tiny_tokenizer().encode(_TEXT).ids
    tokens = torch.zeros((4, 40), dtype=torch.int32)
    tokens[2, _PROMPT : _PROMPT + len(ids)] = torch.tensor(ids, dtype=torch.int32)
    slots, widths = np.array([2]), np.ones(1, np.int64)
    table = table_of(vocabulary)
    asked = table.ask(slots, np.array([_PROMPT + 2]), tokens)
    assert asked is not None
    rows = table.rows(slots, widths, np.array([_PROMPT]))
    assert rows is not None
    if n_told:
        rows.report(np.array([n_told]), np.array(ids[:n_told]))
    (mask,) = allowed(table.masks(asked).masks)
    other = table_of(vocabulary)
    again = other.ask(np.array([0, 2]), np.array([9, _PROMPT + 2]), tokens)
    assert again is not None
    answer = other.masks(again)
    assert (answer.index.tolist(), answer.slots.tolist(), answer.positions.tolist()) == ([1], [2], [_PROMPT + 2])
    assert allowed(answer.masks) == [mask]
    assert ids[2] in mask


def test_each_draft_has_a_mask_of_its_own(vocabulary: GrammarVocabulary) -> None:
    ids = tiny_tokenizer().encode(_TEXT).ids
    tokens = torch.zeros((4, 40), dtype=torch.int32)
    tokens[2, _PROMPT : _PROMPT + len(ids)] = torch.tensor(ids, dtype=torch.int32)
    table = table_of(vocabulary)
    n = len(ids) + 1
    asked = table.ask(np.full(n, 2), np.arange(_PROMPT, _PROMPT + n), tokens)
    assert asked is not None
    answer = table.masks(asked)
    assert answer.drafts[1:].tolist() == ids
    masks = allowed(answer.masks)
    assert all(token in mask for token, mask in zip(ids, masks, strict=False))
    assert masks[-1] == {END}
    assert END not in masks[0]


def test_rows_without_grammars_ask_for_nothing(vocabulary: GrammarVocabulary) -> None:
    assert table_of(vocabulary).ask(np.array([0, 1]), np.array([5, 5]), torch.zeros((4, 40), dtype=torch.int32)) is None
