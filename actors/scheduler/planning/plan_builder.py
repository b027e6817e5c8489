"""Builds one plan: its rows, and the differences that the ranks need to know. `PlannedStep` is what the scheduler keeps of it
until its results have come. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

import msgspec
import numpy as np

from actors.scheduler.planning.leaders import Leaders
from actors.scheduler.planning.rows.decode_batch import BatchRows
from actors.scheduler.planning.rows.row import Row
from actors.scheduler.planning.step_times import Shape, StepTimes, shape_of
from actors.scheduler.sequences.sequence import Sequence, State
from messages.generation.terms import Terms
from messages.steps import PAGE_TOKENS, NewSequence, PageCopies, Plan, TokenRules
from messages.wire.arrays import EMPTY_I32, int32s


class PageCopy(msgspec.Struct, frozen=True, gc=False):
    """The beginning of a page that a plan copies, for a sequence that enters its slot."""

    sequence: Sequence
    stay: int  # `sequence.stay` when the copy was planned
    source: int
    target: int
    n_tokens: int


@dataclass(frozen=True)
class PlannedStep:
    """A finished plan and what the scheduler keeps of it."""

    plan: Plan
    batch: BatchRows | None  # its first rows, if they were planned together
    others: list[Row]  # the rows after them
    shape: Shape  # of each of its steps
    n_tokens: int  # of all its steps
    n_asked: int  # prompt tokens of sequences that enter for the first time, for which the prefix cache was asked
    n_cached: int  # of these, tokens that need no prefill
    saved_s: float  # that their prefill would have taken, as far as the gang's steps have been measured
    n_preempted: int
    n_displaced: int
    n_prompts: int  # rows that compute prompts
    prompt_tokens: int  # tokens of these rows
    prompt_pairs: int  # of such a token and a key before it

    @cached_property
    def rows(self) -> list[Row]:
        """All rows, in the order of the plan."""
        return self.others if self.batch is None else self.batch.rows() + self.others

    @property
    def sampling(self) -> list[Row]:
        """Those that sample, in the order of the result."""
        return [row for row in self.rows if row.samples]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.plan.row_slots)

    @property
    def work(self) -> tuple[int, int, int]:
        """What each of its steps computes: (decode rows, tokens of prompts, pairs of such a token and a key before it)."""
        return self.n_rows - self.n_prompts, self.prompt_tokens, self.prompt_pairs

    def written_pages(self) -> list[int]:
        """The pages to which it may write, before the next plan is made."""
        n_more = self.plan.n_steps - 1
        pages = [] if self.plan.copies is None else self.plan.copies.targets.tolist()
        for row in self.rows:
            end = row.start + row.count + n_more
            pages += row.sequence.pages[row.start // PAGE_TOKENS : -(-end // PAGE_TOKENS)]
        return pages


@dataclass
class PlanBuilder:
    """The plan that is being made: its rows and the differences that the ranks need to know."""

    times: StepTimes
    batch: BatchRows | None = None  # its first rows, if they were planned together
    rows: list[Row] = field(default_factory=list)  # those after them
    entered: list[Sequence] = field(default_factory=list)  # sequences that are new in their slots
    leaders: Leaders = field(default_factory=Leaders)
    copies: list[PageCopy] = field(default_factory=list)
    page_slots: list[int] = field(default_factory=list)
    page_indices: list[int] = field(default_factory=list)
    page_ids: list[int] = field(default_factory=list)
    n_tokens: int = 0  # of one step
    n_cached: int = 0
    saved_s: float = 0.0
    n_preempted: int = 0
    n_displaced: int = 0  # sequences that have given their slots to others
    n_held_up: int = 0  # waiting sequences that have found no pages, or none in the budget of their caller
    n_prompts: int = 0
    prompt_tokens: int = 0
    prompt_pairs: int = 0
    n_followers: int = 0  # waiting sequences that wait for what this plan computes; the next free slots are theirs
    is_full: bool = False  # a waiting sequence finds no pages, and no other one is tried
    _with_rows: set[int] = field(default_factory=set)  # numbers of the sequences in the first rows; `has_row` adds the others

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return len(self.rows) + (len(self.batch) if self.batch is not None else 0)

    @property
    def sequences(self) -> list[Sequence]:
        """The sequence of each row."""
        others = [row.sequence for row in self.rows]
        return others if self.batch is None else self.batch.batch.sequences + others

    @property
    def counts(self) -> list[int]:
        """The number of positions of each row."""
        others = [row.count for row in self.rows]
        return others if self.batch is None else [1] * len(self.batch) + others

    @property
    def is_plain(self) -> bool:
        """True if each row has one position, so none has drafts: most plans are so, and are built in less time."""
        return self.n_tokens == self.n_rows

    def unfold(self) -> None:
        """Make the rows that were planned together rows like any others."""
        if self.batch is not None:
            self.rows, self.batch = self.batch.rows() + self.rows, None

    def has_row(self, sequence: Sequence) -> bool:
        """True if this plan has a row for the sequence. Constant time on average: each row is added to a set once, and only
        when pages are short."""
        n_entered = len(self._with_rows)  # a plan has one row for a sequence
        if n_entered < self.n_rows:
            self._with_rows.update(one.number for one in self.sequences[n_entered:])
        return sequence.number in self._with_rows

    def add_pages(self, slot: int, first_index: int, pages: list[int]) -> None:
        """Add pages to the page table of a slot, from index `first_index` on."""
        if len(pages) == 1:  # of most rows that begin a page
            self.page_slots.append(slot)
            self.page_indices.append(first_index)
        else:
            self.page_slots += [slot] * len(pages)
            self.page_indices += range(first_index, first_index + len(pages))
        self.page_ids += pages

    def n_copied_for(self, sequence: Sequence) -> int:
        """Tokens that this plan copies for the sequence that has entered last; 0 for any other one."""
        return self.copies[-1].n_tokens if self.copies and self.copies[-1].sequence is sequence else 0

    def restate_pages(self) -> None:
        """Give the whole page table of each sequence in `entered` that runs, instead of differences."""
        self.page_slots, self.page_indices, self.page_ids = [], [], []
        for sequence in self.entered:
            if sequence.state is State.RUNNING:
                self.add_pages(sequence.slot, 0, sequence.pages)

    def count_prompt(self, start: int, n_tokens: int, n_rows: int = 1) -> None:
        """Count `n_tokens` of a prompt from position `start` on, in a new row; `n_rows` 0: in a row that was counted."""
        self.n_prompts += n_rows
        self.prompt_tokens += n_tokens
        self.prompt_pairs += n_tokens * start + n_tokens * n_tokens // 2

    def finish(self, epoch: int, step: int, n_steps: int) -> PlannedStep:
        """The finished plan with its epoch, its first step number and its number of steps."""
        context = max([row.start + row.count for row in self.rows], default=0)
        if self.batch is not None:
            context = max(context, int(self.batch.starts.max()) + 1)
        shape = shape_of(self.n_rows, self.n_tokens, context)
        return PlannedStep(
            plan=self._message(epoch, step, n_steps, shape),
            batch=self.batch,
            others=self.rows,
            shape=shape,
            n_tokens=self.n_tokens * n_steps,
            n_asked=sum([s.n_prompt for s in self.entered if s.stay == s.cached_stay and s.state is State.RUNNING]),
            n_cached=self.n_cached,
            saved_s=self.saved_s,
            n_preempted=self.n_preempted,
            n_displaced=self.n_displaced,
            n_prompts=self.n_prompts,
            prompt_tokens=self.prompt_tokens,
            prompt_pairs=self.prompt_pairs,
        )

    def _message(self, epoch: int, step: int, n_steps: int, shape: Shape) -> Plan:
        rows, entered = self.rows, [s for s in self.entered if s.state is State.RUNNING]
        n_before, is_plain = self.n_rows - len(rows), self.is_plain  # rows of the batch
        drafts = [] if is_plain else [token for row in rows for token in row.drafts]
        samples = [row.samples for row in rows]
        slots, starts = int32s([row.slot for row in rows]), int32s([row.start for row in rows])
        if self.batch is not None:
            slots, starts = _after(self.batch.batch.slots, slots), _after(self.batch.starts, starts)
        return Plan(
            epoch=epoch,
            step=step,
            n_steps=n_steps,
            new=[_entry_of(sequence) for sequence in entered],
            new_tokens=np.concatenate([s.tokens() for s in entered]) if entered else EMPTY_I32,
            page_slots=int32s(self.page_slots),
            page_indices=int32s(self.page_indices),
            page_ids=int32s(self.page_ids),
            row_slots=slots,
            row_starts=starts,
            row_counts=_ones(len(slots)) if is_plain else _after(_ones(n_before), int32s([row.count for row in rows])),
            row_samples=_ones(len(slots)) if all(samples) else _after(_ones(n_before), int32s(samples)),
            draft_counts=int32s([0] * n_before + [len(row.drafts) for row in rows]) if drafts else EMPTY_I32,
            draft_ids=int32s(drafts),
            expected_s=self.times.expected_s(shape),
            copies=self._copies() if self.copies else None,
        )

    def _copies(self) -> PageCopies:
        """The copies for sequences that are still in their slots."""
        copies = [copy for copy in self.copies if copy.stay == copy.sequence.stay]
        return PageCopies(
            sources=int32s([copy.source for copy in copies]),
            targets=int32s([copy.target for copy in copies]),
            tokens=int32s([copy.n_tokens for copy in copies]),
        )


def _after(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Both arrays, one after the other, [n] int32."""
    if not len(others):
        return first
    return np.concatenate((first, others)) if len(first) else others


@cache
def _ones(n: int) -> np.ndarray:
    """[n] int32, read-only; a gang has at most as many rows as slots."""
    ones = np.ones(n, "<i4")
    ones.setflags(write=False)
    return ones


def _entry_of(sequence: Sequence) -> NewSequence:
    """What the ranks need to know of a sequence that enters a slot."""
    grammar = sequence.terms.grammar
    return NewSequence(
        slot=sequence.slot,
        n_tokens=sequence.known,
        n_prompt=sequence.n_prompt,
        sampling=sequence.sampling,
        terms=sequence.terms.of_ranks(),
        grammar=grammar.text if grammar is not None else "",
        end_tokens=sequence.terms.stop_tokens if grammar is not None else [],
        rules=_rules_of(sequence.terms),
        prompt_logprobs=sequence.prompt_logprobs_due,
        request=sequence.request,
    )


def _rules_of(terms: Terms) -> TokenRules | None:
    """The rules for single tokens; None if there are none."""
    if not terms.logit_bias and terms.allowed_token_ids is None and not terms.bad_tokens:
        return None
    biased, biases = [int(token) for token in terms.logit_bias], list(terms.logit_bias.values())
    return TokenRules(biased=biased, biases=biases, allowed=terms.allowed_token_ids, bad=terms.bad_tokens)
