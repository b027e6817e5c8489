"""The grammars of a rank's slots: masks for the samples of a step, and what is known of the tokens after them.

A matcher consumes the tokens that were sampled before the positions of a step. On a GPU they are known with the result of the
step before, while the layers of this step run already: its samples alone wait for the masks (`GrammarStep`). Samples after
drafts are masked as if the drafts before them were right: where one is not, the samples after it are dropped, so their masks
do not matter. A draft that breaks the grammar is never sampled, and so rejected.

Where a grammar allows one continuation only, such as the next key of an object, rank 0 tells the scheduler these tokens, and
they come back as drafts in a later plan. Only ranks can find them, because only they have the vocabulary. Nobody keeps them:
after a death the next gang finds the same tokens from the grammar and the answer so far.

All ranks of a gang have the same tokens, so their masks are equal. The library is llguidance: Earley's parser over a lexer of
derivatives of regular expressions, with masks from a walk over a trie of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from llguidance import LLMatcher

from gpu_workers.engine import PlanRefused
from gpu_workers.grammar.answer_grammar import AnswerBeginning, AnswerGrammar
from gpu_workers.grammar.compiled_grammars import CompiledGrammars
from gpu_workers.grammar.grammar_step import GrammarRow, GrammarStep, SamplePlaces
from gpu_workers.grammar.mask_maker import MaskMaker
from gpu_workers.grammar.thought import end_finder
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from messages.generation.grammar import BoundedThinking
from messages.steps import Plan


class GrammarTable:
    """The slots that have a grammar. Used by one thread; the steps that it gives out may be used by another one."""

    def __init__(self, vocabulary: GrammarVocabulary | None) -> None:
        """vocabulary None: the model has no tokenizer, and plans with grammars are refused."""
        self._vocabulary = vocabulary
        self._compiled = CompiledGrammars(vocabulary) if vocabulary is not None else None
        self._maker = MaskMaker(vocabulary) if vocabulary is not None else None
        self._slots: dict[int, AnswerGrammar] = {}
        self._newest: GrammarStep | None = None

    @property
    def is_waiting(self) -> bool:
        """True while a step waits for a grammar that is compiled; read by any thread."""
        return self._maker is not None and self._maker.is_waiting

    def prepare(self, grammar: str) -> Sequence[Future[LLMatcher]]:
        """Begin to compile a grammar. Returns all that an answer to it will wait for. Called by any thread."""
        return _begin(self._compiled, grammar).compilations if self._compiled is not None else ()

    def check(self, plan: Plan) -> None:
        """Check the grammars of a plan before it runs. Raises: PlanRefused if there is one, and this model has no tokenizer,
        or if the plan has several steps: the masks of each need the tokens of the one before."""
        slots = [new.slot for new in plan.new if new.grammar]
        if self._vocabulary is None and slots:
            raise PlanRefused("new.grammar: expected none for a model without a tokenizer", slots)
        if plan.n_steps > 1 and (slots or self.has_any(plan.row_slots)):
            bound = [slot for slot in plan.row_slots.tolist() if slot in self._slots or slot in slots]
            raise PlanRefused(f"n_steps: expected 1 for rows that follow a grammar, got {plan.n_steps}", bound)

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

    def step(self, slots: np.ndarray, widths: np.ndarray, positions: np.ndarray, drafts: np.ndarray) -> GrammarStep | None:
        """A step that is launched now; None if no row that samples has a grammar.

        slots, widths: [N] of the rows that sample, and how many samples each has; positions: [S] of the tokens to be sampled;
        drafts: [S - N] of all rows. On the host."""
        if self._maker is None or not self.has_any(slots):
            return None
        answers = [self._slots.get(slot) for slot in slots.tolist()]
        bound = np.repeat(np.array([answer is not None for answer in answers]), widths)
        begins = np.cumsum(widths) - widths
        before = np.zeros(len(positions), np.int64)
        before[np.delete(np.arange(len(positions)), begins)] = drafts
        rows, first, draft, ids = list[GrammarRow](), 0, 0, drafts.tolist()
        for index, (slot, answer, width) in enumerate(zip(slots.tolist(), answers, widths.tolist(), strict=True)):
            if answer is not None:
                rows.append(GrammarRow(index, slot, first, answer, ids[draft : draft + width - 1]))
                first += width
            draft += width - 1
        all_slots = np.repeat(slots, widths).astype(np.int64)
        places = SamplePlaces(np.flatnonzero(bound), all_slots[bound], positions[bound], before[bound])
        self._newest = GrammarStep(self._maker, rows, places, self._newest)
        return self._newest

    def reset(self) -> None:
        """Forget all slots. No step may be in flight."""
        self._slots.clear()
        self._newest = None


def _begin(compiled: CompiledGrammars, text: str) -> AnswerBeginning:
    """What an answer to a plan's grammar begins with."""
    thinking = BoundedThinking.read(text)
    if thinking is None:
        return AnswerBeginning(compiled.get(text))
    matcher = compiled.get(thinking.grammar) if thinking.grammar else None
    return AnswerBeginning(matcher, thinking, compiled.get(end_finder(thinking)))
