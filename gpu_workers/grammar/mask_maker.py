"""Writes the masks of many answers: those that were computed ahead are copied, single tokens are set, the rest is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import wait
from itertools import chain
from threading import Lock

import numpy as np
from llguidance import LLMatcher

from gpu_workers.grammar.answer_grammar import AnswerGrammar
from gpu_workers.grammar.grammar_row import GrammarRow
from gpu_workers.grammar.mask_filler import MaskFiller
from gpu_workers.grammar.masks_ahead import MaskThreads, fill_alone
from gpu_workers.grammar.vocabulary import GrammarVocabulary


class MaskMaker:
    """Used by any thread: `lock` is of all matchers, and of all masks that were computed ahead."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self.lock, self.threads = Lock(), MaskThreads()
        self._vocabulary, self._filler = vocabulary, MaskFiller()
        self._ahead = np.empty((0, self.n_words), np.int32)  # [slots, words]: the masks of answers that have one
        self.is_waiting = False  # a step waits for a grammar that is compiled; read by any thread

    @property
    def n_columns(self) -> int:
        """Ids in a mask."""
        return self._vocabulary.n_columns

    @property
    def n_words(self) -> int:
        """The words of a mask."""
        return -(-self._vocabulary.n_columns // 32)

    def await_late(self, answers: Iterable[AnswerGrammar]) -> None:
        """Wait for what the scheduler should have waited for, without the lock, which the results of other steps need."""
        if late := list(chain.from_iterable(answer.late for answer in answers)):
            self.is_waiting = True
            wait(late)
            self.is_waiting = False

    def write(self, rows: Sequence[GrammarRow], masks: np.ndarray) -> None:
        """Write which tokens the samples of these rows may be. masks: [M, words] int32, not initialised."""
        with self.lock:
            writing = _Writing(masks)
            for row in rows:
                self._write_row(writing, row)
            writing.finish(self._ahead)
            self._compute(writing.matchers, writing.answers, masks)
            self._allow_ends(masks, writing.may_end)
            for row in rows:
                for index, token in row.answer.forced_after(row.drafts).items():
                    masks[row.first + index] = 0
                    _set(masks, row.first + index, token)

    def look_ahead(self, answers: Sequence[tuple[int, AnswerGrammar]]) -> None:
        """Compute the masks after the tokens so far and those that must follow. answers: with their slots."""
        with self.lock:
            wanted = [(slot, answer) for slot, answer in answers if _has_quick_mask(answer)]
            if not wanted:
                return
            self._make_room(max(slot for slot, _ in wanted) + 1)
            self._compute([(answer.matcher, slot, []) for slot, answer in wanted], [each for _, each in wanted], self._ahead)
            self._allow_ends(self._ahead, wanted)
            for _, answer in wanted:
                answer.has_mask = True

    def _write_row(self, writing: _Writing, row: GrammarRow) -> None:
        answer, place, after = row.answer, row.first, row.first + len(row.drafts) + 1
        n_alone = min(len(answer.beyond), after - place)
        writing.alone += zip(range(place, place + n_alone), answer.beyond, strict=False)
        place, drafts = place + n_alone, row.drafts[n_alone:]
        if place == after:
            return
        if answer.is_free:
            writing.open += range(place, after)
            return
        if answer.is_over:
            writing.closed += range(place, after)
            writing.may_end += ((each, answer) for each in range(place, after))
            return
        if answer.has_mask and not drafts:
            writing.copied.append((place, row.slot))
            return
        drafts = answer.possible(drafts)
        self._want(writing, answer, place, drafts)
        writing.open += range(place + len(drafts) + 1, after)

    def _want(self, writing: _Writing, answer: AnswerGrammar, place: int, drafts: list[int]) -> None:
        """Masks from `place` on that were not computed ahead by this thread."""
        if (ahead := answer.take_ahead(drafts)) is not None:
            writing.masks[place : place + len(ahead)] = ahead
        elif answer.times.total_s:
            writing.matchers.append((answer.matcher, place, drafts))
            writing.answers.append(answer)
        else:  # its first mask says whether its grammar is slow
            answer.times.add(fill_alone(answer.matcher, place, drafts, writing.masks), 1 + len(drafts))
        writing.may_end += ((each, answer) for each in range(place, place + len(drafts) + 1))

    def _compute(
        self, matchers: list[tuple[LLMatcher, int, list[int]]], answers: Sequence[AnswerGrammar], masks: np.ndarray
    ) -> None:
        if matchers:
            took_s = self._filler.fill(matchers, masks)
            for answer, mask_s, (_, _, drafts) in zip(answers, took_s, matchers, strict=bool(took_s)):
                answer.times.add(mask_s, 1 + len(drafts))

    def _make_room(self, n_slots: int) -> None:
        if n_slots > len(self._ahead):
            grown = np.empty((max(n_slots, 2 * len(self._ahead)), self.n_words), np.int32)
            grown[: len(self._ahead)] = self._ahead
            self._ahead = grown

    def _allow_ends(self, masks: np.ndarray, places: Iterable[tuple[int, AnswerGrammar]]) -> None:
        """Where a grammar allows the answer to end, allow the end tokens of its sequence instead. masks: [M, words] int32;
        places: rows of it, each with its answer. An answer that is over may end."""
        of_tokens: dict[tuple[int, ...], list[int]] = {}  # end tokens -> the rows that they may end
        over: list[int] = []
        for place, answer in places:
            of_tokens.setdefault(tuple(answer.end_tokens), []).append(place)
            if answer.is_over:
                over.append(place)
        (end, end_bit), words = _place(self._vocabulary.end), masks.view(np.uint32)
        words[over, end] |= end_bit
        for tokens, rows in of_tokens.items():
            ending = np.array(rows)[(words[rows, end] & end_bit) != 0]
            words[rows, end] &= ~end_bit  # an id that the tokenizer lacks, and a model may have all the same
            for word, bit in map(_place, tokens):
                words[ending, word] |= bit


class _Writing:
    """What is to be written to the masks of a step."""

    def __init__(self, masks: np.ndarray) -> None:
        self.masks = masks
        self.alone: list[tuple[int, int]] = []  # (place, the only token)
        self.open: list[int] = []  # every token is allowed
        self.closed: list[int] = []  # none is, before ends are allowed
        self.copied: list[tuple[int, int]] = []  # (place, slot whose mask was computed ahead)
        self.may_end: list[tuple[int, AnswerGrammar]] = []  # masks that lack their end tokens
        self.matchers: list[tuple[LLMatcher, int, list[int]]] = []  # (matcher, its first mask, drafts that it allows)
        self.answers: list[AnswerGrammar] = []  # of these matchers

    def finish(self, ahead: np.ndarray) -> None:
        """Write all but what must be computed. ahead: [slots, words] int32."""
        if self.copied:
            places, slots = np.array(self.copied).T
            self.masks[places] = ahead[slots]
        if self.alone:
            places, tokens = np.array(self.alone).T
            self.masks[places] = 0
            self.masks.view(np.uint32)[places, tokens // 32] = np.uint32(1) << (tokens % 32).astype(np.uint32)
        self.masks[self.open] = -1
        self.masks[self.closed] = 0


def _has_quick_mask(answer: AnswerGrammar) -> bool:
    if answer.is_free or answer.has_mask or answer.is_resting or not answer.times.total_s:
        return False
    return not answer.is_over


def _set(masks: np.ndarray, row: int, token: int) -> None:
    word, bit = _place(token)
    masks.view(np.uint32)[row, word] |= bit


def _place(token: int) -> tuple[int, np.uint32]:
    """(word of a mask, bit in it) of a token."""
    return token // 32, np.uint32(1 << (token % 32))
