"""Masks in the calling thread and masks by several threads are the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask

from gpu_workers.grammar.mask_filler import MaskFiller
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from tests.support.workers.grammar.grammar_runs import OBJECT, TOO_COMPLEX, WORDS
from tests.support.workers.grammar.tiny_tokenizer import write_tokenizer

N_IDS = 211


class Threaded(MaskFiller):
    """One for which no mask is quick."""

    def _are_quick(self, n_masks: int) -> bool:
        return False


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> GrammarVocabulary:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return GrammarVocabulary(folder / "tokenizer.json", N_IDS)


def allowed(mask: np.ndarray) -> list[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[:N_IDS]).tolist()


@pytest.mark.parametrize("grammar", [WORDS, OBJECT, TOO_COMPLEX])
def test_masks_are_equal_with_and_without_threads(vocabulary: GrammarVocabulary, grammar: str) -> None:
    start = LLMatcher(vocabulary.tokenizer(), grammar, log_level=0)
    rng, quick, threaded = random.Random(7), MaskFiller(), Threaded()
    for _ in range(20):
        walked, tokens = start.deep_copy(), list[int]()
        found = {}
        for filler in (quick, threaded):
            masks = allocate_token_bitmask(3, vocabulary.n_columns)
            filler.fill([(walked, 1)], masks)
            found[filler] = masks
        assert (found[quick] == found[threaded]).all()
        for _ in range(rng.randint(1, 6)):
            masks = allocate_token_bitmask(1, vocabulary.n_columns)
            quick.fill([(walked, 0)], masks)
            if walked.is_error() or not (choices := allowed(masks[0])) or walked.is_stopped():
                break
            tokens.append(rng.choice(choices))
            walked.consume_token(tokens[-1])
        for filler in (quick, threaded):
            fresh, masks = start.deep_copy(), allocate_token_bitmask(len(tokens) + 2, vocabulary.n_columns)
            filler.fill_drafted([(fresh, 1, tokens)], masks)
            found[filler] = masks
            filler.fill([(fresh, 0)], masks)
        assert (found[quick] == found[threaded]).all(), "also the matchers stand where they stood"


def test_slow_masks_are_left_to_threads_for_a_while() -> None:
    filler = MaskFiller()
    assert filler._are_quick(1000)
    filler._note(10, 0.1)
    assert not filler._are_quick(10)
    n_steps = 0
    while not filler._are_quick(1):
        n_steps += 1
    assert 100 < n_steps < 1000
