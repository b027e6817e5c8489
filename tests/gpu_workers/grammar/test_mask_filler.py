"""Masks in the calling thread and masks by several threads are the same."""

from __future__ import annotations

import random
from collections.abc import Callable
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
    """One that always uses threads."""

    def _chooses_threads(self, n_masks: int) -> bool:
        return True


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
            filler.fill([(walked, 1, [])], masks)
            found[filler] = masks
        assert (found[quick] == found[threaded]).all()
        for _ in range(rng.randint(1, 6)):
            masks = allocate_token_bitmask(1, vocabulary.n_columns)
            quick.fill([(walked, 0, [])], masks)
            if walked.is_error() or not (choices := allowed(masks[0])) or walked.is_stopped():
                break
            tokens.append(rng.choice(choices))
            walked.consume_token(tokens[-1])
        for filler in (quick, threaded):
            fresh, masks = start.deep_copy(), allocate_token_bitmask(len(tokens) + 2, vocabulary.n_columns)
            filler.fill([(fresh, 1, tokens)], masks)
            found[filler] = masks
            filler.fill([(fresh, 0, [])], masks)
        assert (found[quick] == found[threaded]).all(), "also the matchers stand where they stood"


def spend(clock: list[float], duration_s: float) -> Callable[[], None]:
    """Something that takes so long."""

    def spent() -> None:
        clock[0] += duration_s

    return spent


@pytest.mark.parametrize(("alone_s", "together_s", "share"), [(0.02, 0.005, 0.98), (0.005, 0.02, 0.02), (0.0005, 0.0001, 0.0)])
def test_the_faster_way_is_used(monkeypatch: pytest.MonkeyPatch, alone_s: float, together_s: float, share: float) -> None:
    clock, filler = [0.0], MaskFiller()
    monkeypatch.setattr("gpu_workers.grammar.mask_filler.time.perf_counter", lambda: clock[0])
    used = list[str]()
    for _ in range(1000):
        began_s = clock[0]
        filler._measure(64, spend(clock, alone_s), spend(clock, together_s))
        used.append("together" if clock[0] - began_s == pytest.approx(together_s) else "alone")
    assert used.count("together") / 1000 == pytest.approx(share, abs=0.01)
    assert share in (0.0, 1.0) or {"alone", "together"} == set(used[-60:]), "the other way is tried again"
