"""The grammars of a rank's slots: masks for the samples of a step, and what is known of the tokens after them.

A matcher consumes the tokens that were sampled before the positions of a step, which it reads from the token table. On a GPU
that waits for the step before. Samples after drafts are masked as if the drafts before them were right: where one is not, the
samples after it are dropped, so their masks do not matter. A draft that breaks the grammar is never sampled, and so rejected.

Where a grammar allows one continuation only, such as the next key of an object, rank 0 tells the scheduler, which sends these
tokens back as drafts: the ranks have the vocabulary, without which nobody can know them, and nobody needs to keep them, because
whoever follows the answer after a death finds the same ones.

All ranks of a gang have the same tokens, so their masks are equal. The library is llguidance: Earley's parser over a lexer of
derivatives of regular expressions, with masks from a walk over a trie of the vocabulary.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch
from llguidance import LLExecutor, LLMatcher
from llguidance.numpy import (
    allocate_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)

from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.batch.uploads import upload
from gpu_workers.engine import PlanRefused
from gpu_workers.grammar.answer_grammar import AnswerGrammar
from gpu_workers.grammar.compiled_grammars import CompiledGrammars
from gpu_workers.grammar.grammar_rows import GrammarRow, GrammarRows
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from messages.steps import Plan


class GrammarTable:
    """The slots that have a grammar. Used by one thread; the `GrammarRows` that it gives out may be used by another one."""

    def __init__(self, vocabulary: GrammarVocabulary | None) -> None:
        """vocabulary None: the model has no tokenizer, and plans with grammars are refused."""
        self._vocabulary = vocabulary
        self._compiled = CompiledGrammars(vocabulary) if vocabulary is not None else None
        self._slots: dict[int, AnswerGrammar] = {}
        self._executor = LLExecutor()
        self._lock = Lock()  # of all matchers

    def check(self, plan: Plan) -> None:
        """Raises: PlanRefused if the plan has a grammar, and this model no tokenizer."""
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
                self._slots[new.slot] = AnswerGrammar(self._compiled.get(new.grammar), new.end_tokens, new.n_prompt, generated)
            first += new.n_tokens

    def has_any(self, slots: np.ndarray) -> bool:
        """True if any of these slots [N] has a grammar."""
        return bool(self._slots) and not self._slots.keys().isdisjoint(slots.tolist())

    def rows(self, slots: np.ndarray, widths: np.ndarray, positions: np.ndarray) -> GrammarRows | None:
        """Those of a step's rows that have a grammar; None if no row has one.

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
        return GrammarRows(rows, self._lock)

    def mask(self, logits: torch.Tensor, rows: SamplingRows, tokens: torch.Tensor) -> torch.Tensor:
        """The logits without the tokens that break a row's grammar. On a CPU they are written in place, unless a row wants log
        probabilities, which are the model's: a copy takes longer than the masks.

        logits: [S, vocabulary] float32; rows: of the S samples; tokens: the token table, same device.
        """
        if not self.has_any(rows.slots):
            return logits
        samples = self._samples(rows)
        index = np.concatenate(list(samples.values()))
        with self._lock:
            allowed = self._allowed(samples, rows.positions, tokens)
        if logits.is_cuda:
            on_device, forbidden = upload(index, logits.device), upload(~allowed, logits.device)
            return logits.index_put((on_device,), logits[on_device].masked_fill_(forbidden, float("-inf")))
        masked = logits.clone() if rows.wants_logprobs else logits
        for row, one in zip(index.tolist(), allowed, strict=True):
            np.copyto(masked[row].numpy(), -np.inf, where=~one)
        return masked

    def reset(self) -> None:
        """Forget all slots."""
        self._slots.clear()

    def _samples(self, rows: SamplingRows) -> dict[int, np.ndarray]:
        """The samples of each slot that has a grammar: indices into the S samples, one position after the other."""
        found: dict[int, list[int]] = {}
        for index, slot in enumerate(rows.slots.tolist()):
            if slot in self._slots:
                found.setdefault(slot, []).append(index)
        return {slot: np.array(indices, np.int64) for slot, indices in found.items()}

    def _allowed(self, samples: dict[int, np.ndarray], positions: np.ndarray, tokens: torch.Tensor) -> np.ndarray:
        """[M, vocabulary] bool: which tokens may stand at each of these samples, slot after slot."""
        assert self._vocabulary is not None
        known = self._known(samples, positions, tokens)
        widths = [len(indices) for indices in samples.values()]
        masks = allocate_token_bitmask(sum(widths), self._vocabulary.n_columns)
        single: list[tuple[LLMatcher, int]] = []  # (matcher, its first mask)
        drafted: list[tuple[LLMatcher, int, list[int]]] = []  # the same with drafts
        first = 0
        for slot, width, (sampled, drafts) in zip(samples, widths, known, strict=True):
            answer = self._slots[slot]
            answer.consume(sampled)
            possible = answer.possible(drafts)
            if possible:
                drafted.append((answer.matcher, first, possible))
            elif not answer.is_over:
                single.append((answer.matcher, first))
            first += width
        if single:
            fill_next_token_bitmask_par(self._executor, single, masks)
        if drafted:
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, drafted, masks)
        bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little", count=self._vocabulary.n_columns).view(bool)
        self._allow_ends(bits, samples, widths)
        return bits[:, : self._vocabulary.size]

    def _allow_ends(self, bits: np.ndarray, samples: dict[int, np.ndarray], widths: list[int]) -> None:
        """Where the grammar allows the answer to end, allow the end tokens of the sequence instead. bits: [M, columns]."""
        assert self._vocabulary is not None
        first, end = 0, self._vocabulary.end
        for slot, width in zip(samples, widths, strict=True):
            answer, rows = self._slots[slot], bits[first : first + width]
            if answer.is_over:
                rows[:] = False
                rows[:, answer.end_tokens] = True
            else:
                may_end = rows[:, end : end + 1].copy()
                rows[:, end] = False  # an id that the tokenizer lacks, and a model may have all the same
                rows[:, answer.end_tokens] |= may_end
            first += width

    def _known(
        self, samples: dict[int, np.ndarray], positions: np.ndarray, tokens: torch.Tensor
    ) -> list[tuple[list[int], list[int]]]:
        """(tokens that the matcher does not know yet, drafts after them) of each slot, read from the token table at once."""
        spans: list[tuple[int, int, int]] = []
        for slot, indices in samples.items():
            at = positions[indices]
            spans.append((self._slots[slot].n_consumed, int(at[0]), int(at[-1])))
        width = tokens.shape[1]
        places = [
            np.arange(slot * width + first, slot * width + last) for slot, (first, _, last) in zip(samples, spans, strict=True)
        ]
        read = tokens.view(-1)[upload(np.concatenate(places), tokens.device)].tolist()
        known, at = [], 0
        for first, middle, last in spans:
            known.append((read[at : at + middle - first], read[at + middle - first : at + last - first]))
            at += last - first
        return known
