"""The grammars of a rank's slots: masks for the samples of a step, and what is known of the tokens after them.

A matcher consumes the tokens that were sampled before the positions of a step. They are read from the token table: on a GPU
they come with the end of the step before, while the layers of this step run already (`mask_question`). Samples after drafts are
masked as if the drafts before them were right: where one is not, the samples after it are dropped, so their masks do not
matter. A draft that breaks the grammar is never sampled, and so rejected.

Where a grammar allows one continuation only, such as the next key of an object, rank 0 tells the scheduler these tokens, and
they come back as drafts in a later plan. Only ranks can find them, because only they have the vocabulary. Nobody keeps them:
after a death the next gang finds the same tokens from the grammar and the answer so far.

All ranks of a gang have the same tokens, so their masks are equal. The library is llguidance: Earley's parser over a lexer of
derivatives of regular expressions, with masks from a walk over a trie of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from itertools import chain
from threading import Lock

import numpy as np
import torch
from llguidance import LLMatcher

from gpu_workers.engine import PlanRefused
from gpu_workers.grammar.answer_grammar import AnswerBeginning, AnswerGrammar
from gpu_workers.grammar.compiled_grammars import CompiledGrammars
from gpu_workers.grammar.grammar_rows import GrammarRow, GrammarRows
from gpu_workers.grammar.mask_filler import MaskFiller
from gpu_workers.grammar.mask_question import MaskQuestion, ask
from gpu_workers.grammar.masks_ahead import MaskThreads, fill_alone
from gpu_workers.grammar.thought import end_finder
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from gpu_workers.sampling.masked_logits import MaskedSamples
from messages.generation.grammar import BoundedThinking
from messages.steps import Plan


def _new_room(n: int, n_words: int) -> np.ndarray:
    return np.empty((n, n_words), np.int32)


class GrammarTable:
    """The slots that have a grammar. Used by one thread; the `GrammarRows` that it gives out may be used by another one."""

    def __init__(self, vocabulary: GrammarVocabulary | None) -> None:
        """vocabulary None: the model has no tokenizer, and plans with grammars are refused."""
        self._vocabulary = vocabulary
        self._compiled = CompiledGrammars(vocabulary) if vocabulary is not None else None
        self._slots: dict[int, AnswerGrammar] = {}
        self._filler = MaskFiller()
        self._threads = MaskThreads()
        self._lock = Lock()  # of all matchers
        self.is_waiting = False  # a step waits for a grammar that is compiled; read by any thread

    def prepare(self, grammar: str) -> Sequence[Future[LLMatcher]]:
        """Begin to compile a grammar. Returns all that an answer to it will wait for. Called by any thread."""
        return _begin(self._compiled, grammar).compilations if self._compiled is not None else ()

    def check(self, plan: Plan) -> None:
        """Check the grammars of a plan before it runs. Raises: PlanRefused if there is one, and this model has no tokenizer."""
        if self._vocabulary is None:
            slots = [new.slot for new in plan.new if new.grammar]
            if slots:
                raise PlanRefused("new.grammar: expected none for a model without a tokenizer", slots)

    def enter(self, plan: Plan) -> None:
        """Take over the plan's new sequences; they replace what was in their slots. Waits for no grammar."""
        first = 0
        for new in plan.new:
            self._slots.pop(new.slot, None)
            if new.grammar and self._compiled is not None:
                generated = plan.new_tokens[first + new.n_prompt : first + new.n_tokens].tolist()
                beginning = _begin(self._compiled, new.grammar)
                self._slots[new.slot] = AnswerGrammar(beginning, new.end_tokens, new.n_prompt, generated)
            first += new.n_tokens

    def has_any(self, slots: np.ndarray) -> bool:
        """True if any of these slots [N] has a grammar."""
        return bool(self._slots) and not self._slots.keys().isdisjoint(slots.tolist())

    def rows(self, slots: np.ndarray, widths: np.ndarray, positions: np.ndarray) -> GrammarRows | None:
        """The rows of a step that have a grammar; None if no row has one.

        slots, widths: [N] of the rows that sample, and how many samples each has; positions: [S] of all samples.
        """
        if not self.has_any(slots):
            return None
        firsts = positions[np.cumsum(widths) - widths].tolist()
        rows = [
            GrammarRow(index, slot, firsts[index], self._slots[slot])
            for index, slot in enumerate(slots.tolist())
            if slot in self._slots
        ]
        assert self._vocabulary is not None
        return GrammarRows(rows, self._lock, self._threads, self._vocabulary)

    def ask(self, slots: np.ndarray, positions: np.ndarray, tokens: torch.Tensor) -> MaskQuestion | None:
        """Called before a step is launched: asks for the tokens that its masks depend on. None if no sample has a grammar.

        slots, positions: [S] int64 of all samples, on the host; tokens: the token table. Waits for nothing."""
        if not self.has_any(slots):
            return None
        found: dict[int, list[int]] = {}
        for index, slot in enumerate(slots.tolist()):
            if slot in self._slots:
                found.setdefault(slot, []).append(index)
        samples = {slot: np.array(indices, np.int64) for slot, indices in found.items()}
        with self._lock:
            n_consumed = {slot: self._slots[slot].n_consumed for slot in samples}
        return ask(samples, n_consumed, positions, tokens)

    def masks(self, question: MaskQuestion, room: Callable[[int, int], np.ndarray] = _new_room) -> MaskedSamples:
        """The answer. Waits for the tokens that were asked for, and for grammars that are not compiled yet.

        room: gives memory for so many masks of so many words, [M, words] int32; called after the first wait."""
        known = question.known()
        self._await_late(question)
        with self._lock:
            masks = self._allowed(question, known, room)
        drafts = [[0, *tokens[span.middle - span.first :]] for span, tokens in zip(question.spans, known, strict=True)]
        before = np.array(list(chain.from_iterable(drafts)), np.int64)
        return MaskedSamples(question.index, question.slots, question.positions, before, masks)

    def reset(self) -> None:
        """Forget all slots."""
        self._slots.clear()

    def _await_late(self, question: MaskQuestion) -> None:
        """Wait for what the scheduler should have waited for, without the lock, which the results of earlier steps need."""
        if late := list(chain.from_iterable(self._slots[span.slot].late for span in question.spans)):
            self.is_waiting = True
            wait(late)
            self.is_waiting = False

    def _allowed(self, question: MaskQuestion, known: list[list[int]], room: Callable[[int, int], np.ndarray]) -> np.ndarray:
        assert self._vocabulary is not None
        masks = room(len(question.index), -(-self._vocabulary.n_columns // 32))
        masks.fill(-1)
        matchers: list[tuple[LLMatcher, int, list[int]]] = []  # (matcher, its first mask, drafts that it allows)
        answers: list[AnswerGrammar] = []  # of these matchers
        first = 0
        for span, tokens in zip(question.spans, known, strict=True):
            answer, n_sampled = self._slots[span.slot], span.middle - span.first
            answer.consume(tokens[answer.n_consumed - span.first : n_sampled])  # the step before has told it the others
            if not answer.is_free and not answer.is_over:  # masks begin with all tokens allowed
                left = self._take_known(answer, tokens[n_sampled:], first, masks)
                if left is not None:
                    matchers.append((answer.matcher, *left))
                    answers.append(answer)
            first += span.n_samples
        if matchers:
            took_s = self._filler.fill(matchers, masks)
            for answer, mask_s, (_, _, drafts) in zip(answers, took_s, matchers, strict=bool(took_s)):
                answer.times.add(mask_s, 1 + len(drafts))
        self._allow_ends(masks, question)
        self._force(masks, question, known)
        return masks

    def _take_known(
        self, answer: AnswerGrammar, drafts: list[int], first: int, masks: np.ndarray
    ) -> tuple[int, list[int]] | None:
        """Write what need not be computed together with the masks of other answers, to masks [M, words] int32 from `first` on.
        Returns what is left: the place of its first mask, and the drafts from there on that the grammar allows."""
        if not answer.is_resting and answer.consume_forced(drafts):
            for place, token in enumerate(drafts, first):
                _allow_alone(masks[place].view(np.uint32), token)
            first, drafts = first + len(drafts), []
        else:
            drafts = answer.possible(drafts)
        if (ahead := answer.take_ahead(drafts)) is not None:
            masks[first : first + len(ahead)] = ahead
        elif answer.times.total_s:
            return first, drafts
        else:  # its first mask says whether its grammar is slow
            answer.times.add(fill_alone(answer.matcher, first, drafts, masks), 1 + len(drafts))
        return None

    def _force(self, masks: np.ndarray, question: MaskQuestion, known: list[list[int]]) -> None:
        """Where reasoning must end, allow the tokens of its end mark alone. masks: [M, words] int32."""
        first, words = 0, masks.view(np.uint32)
        for span, tokens in zip(question.spans, known, strict=True):
            answer = self._slots[span.slot]
            for index, token in answer.forced_after(tokens[span.middle - span.first :]).items():
                _allow_alone(words[first + index], token)
            first += span.n_samples

    def _allow_ends(self, masks: np.ndarray, question: MaskQuestion) -> None:
        """Where the grammar allows the answer to end, allow the end tokens of the sequence instead. masks: [M, words] int32."""
        assert self._vocabulary is not None
        first, (end, end_bit) = 0, _place(self._vocabulary.end)
        words = masks.view(np.uint32)
        may_end = (words[:, end] & end_bit) != 0
        bound = np.zeros(len(words), bool)  # the samples of answers that are not free
        samples_of: dict[tuple[int, ...], list[int]] = {}  # end tokens -> the samples that they may end
        for span in question.spans:
            answer, after = self._slots[span.slot], first + span.n_samples
            if not answer.is_free:
                bound[first:after] = True
                if answer.is_over:
                    words[first:after] = 0
                    may_end[first:after] = True
                samples_of.setdefault(tuple(answer.end_tokens), []).extend(range(first, after))
            first = after
        words[bound, end] &= ~end_bit  # an id that the tokenizer lacks, and a model may have all the same
        for end_tokens, samples in samples_of.items():
            ending = np.array(samples)[may_end[samples]]
            for word, bit in map(_place, end_tokens):
                words[ending, word] |= bit


def _begin(compiled: CompiledGrammars, text: str) -> AnswerBeginning:
    """What an answer to a plan's grammar begins with."""
    thinking = BoundedThinking.read(text)
    if thinking is None:
        return AnswerBeginning(compiled.get(text))
    matcher = compiled.get(thinking.grammar) if thinking.grammar else None
    return AnswerBeginning(matcher, thinking, compiled.get(end_finder(thinking)))


def _allow_alone(words: np.ndarray, token: int) -> None:
    """Let a mask [words] uint32 allow one token."""
    word, bit = _place(token)
    words[:] = 0
    words[word] = bit


def _place(token: int) -> tuple[int, np.uint32]:
    """(word of a mask, bit in it) of a token."""
    return token // 32, np.uint32(1 << (token % 32))
