"""What the grammars of a step's rows say once the tokens of the step are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from gpu_workers.grammar.answer_grammar import AnswerGrammar
from gpu_workers.grammar.masks_ahead import MaskThreads
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from messages.steps import GrammarFailure, GrammarReport, GrammarRest
from messages.wire.arrays import int32s


@dataclass(frozen=True)
class GrammarRow:
    """One row of a step that has a grammar."""

    index: int  # among the step's rows that sample
    slot: int
    position: int  # of its first sample in the whole sequence
    answer: AnswerGrammar  # of the sequence that was in the slot when the step was launched


@dataclass(frozen=True)
class GrammarRows:
    """The rows of a step that have a grammar. May be used by another thread than the table from which it comes."""

    rows: Sequence[GrammarRow]
    lock: Lock  # of all matchers
    threads: MaskThreads
    vocabulary: GrammarVocabulary

    def report(self, counts: np.ndarray, ids: np.ndarray) -> GrammarReport | None:
        """What follows from the step's tokens; None if nothing does.

        counts: [N] tokens that each row of the step has emitted; ids: these tokens, row by row. On the host.
        """
        starts = np.cumsum(counts) - counts
        forced: list[tuple[int, int, list[int]]] = []  # (slot, position, tokens)
        failures: list[GrammarFailure] = []
        rests: list[GrammarRest] = []
        with self.lock:
            for row in self.rows:
                answer, first = row.answer, int(starts[row.index])
                emitted = ids[first : first + int(counts[row.index])].tolist()
                if not answer.failure:
                    answer.sampled(row.position, emitted)
                if reason := answer.failure:
                    failures.append(GrammarFailure(slot=row.slot, reason=reason))
                    continue
                if tokens := answer.forced():
                    forced.append((row.slot, answer.n_consumed, tokens))
                if wait_s := answer.look_ahead(self.threads, self.vocabulary.n_columns, tokens):
                    rests.append(GrammarRest(slot=row.slot, wait_s=wait_s))
        if not forced and not failures and not rests:
            return None
        return GrammarReport(
            slots=int32s([slot for slot, _, _ in forced]),
            starts=int32s([position for _, position, _ in forced]),
            counts=int32s([len(tokens) for _, _, tokens in forced]),
            ids=int32s([token for _, _, tokens in forced for token in tokens]),
            failures=failures,
            rests=rests,
        )
