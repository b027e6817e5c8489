"""One row of a step that has a grammar."""

from __future__ import annotations

import msgspec

from gpu_workers.grammar.answer_grammar import AnswerGrammar


class GrammarRow(msgspec.Struct, frozen=True, gc=False):
    """One row of a step that has a grammar."""

    index: int  # among the step's rows that sample
    slot: int
    first: int  # of its samples, among those of all such rows
    answer: AnswerGrammar  # of the sequence that was in the slot when the step was launched
    drafts: list[int]  # one sample stands before each, and one after the last
