"""A scheduler in miniature for tests of engines: slots, pages from a shuffled free list, plans as differences."""

from __future__ import annotations

import random
from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from gpu_workers.engine import Engine
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms
from messages.steps import PAGE_TOKENS, NewSequence, PageCopies, Plan, Result, TokenRules
from messages.wire.arrays import int32s

GREEDY = Sampling(temperature=0.0)


@dataclass
class Running:
    """One sequence: its tokens as the host knows them, how many are computed, its pages."""

    slot: int
    tokens: list[int]
    n_prompt: int
    sampling: Sampling
    n_computed: int = 0
    n_known: int = 0  # with the sampled tokens that have not come back yet
    pages: list[int] = field(default_factory=list)
    is_sent: bool = False
    min_tokens: int = 0
    banned_tokens: list[int] = field(default_factory=list)  # until min_tokens are generated
    grammar: str = ""
    end_tokens: list[int] = field(default_factory=list)  # where the grammar may end
    rules: TokenRules | None = None
    prompt_logprobs: int = -1
    copied: tuple[int, int, int] | None = None  # source page, target page, tokens: for its first plan

    @property
    def output(self) -> list[int]:
        """Generated tokens so far."""
        return self.tokens[self.n_prompt :]


@dataclass(frozen=True)
class Row:
    """What a plan asks of one sequence: the next `count` tokens, or one token and drafts."""

    sequence: Running
    count: int = 1
    drafts: Values[int] = ()


class SmallScheduler:
    """Writes plans for one engine and reads its results."""

    def __init__(self, engine: Engine, seed: int = 0, epoch: int = 1) -> None:
        self.engine, self.epoch = engine, epoch
        self.step = 0
        capacity = engine.capacity()
        self._free_pages = list(range(capacity.n_pages))
        random.Random(seed).shuffle(self._free_pages)
        self._free_slots = list(range(capacity.n_slots))
        random.Random(seed).shuffle(self._free_slots)
        self.by_slot: dict[int, Running] = {}
        engine.reset(epoch)

    def add(
        self, prompt: Values[int], sampling: Sampling = GREEDY, shares: Running | None = None, n_shared: int = 0
    ) -> Running:
        """A new sequence; with `shares`, its first `n_shared` tokens are another one's: whole pages are shared, and of the next
        one the rest is copied by its first plan."""
        sequence = Running(self._free_slots.pop(), list(prompt), len(prompt), sampling, n_shared, len(prompt))
        if shares is not None:
            n_full, n_copied = divmod(n_shared, PAGE_TOKENS)
            sequence.pages = shares.pages[:n_full]
            if n_copied:
                sequence.copied = (shares.pages[n_full], self._free_pages.pop(), n_copied)
                sequence.pages.append(sequence.copied[1])
        self.by_slot[sequence.slot] = sequence
        return sequence

    def drop(self, sequence: Running, n_shared: int = 0) -> None:
        """Give slot and pages back (but the first `n_shared` tokens' pages)."""
        self._free_pages += sequence.pages[n_shared // PAGE_TOKENS :]
        self._free_slots.append(sequence.slot)
        del self.by_slot[sequence.slot]

    def write_plan(self, rows: list[Row], n_steps: int = 1) -> Plan:
        """One plan with these rows; a row that reaches the last known token samples."""
        new, new_tokens, page_slots, page_indices, page_ids, samples = [], [], [], [], [], []
        copies = [row.sequence.copied for row in rows if row.sequence.copied is not None and not row.sequence.is_sent]
        for row in rows:
            s = row.sequence
            fresh_pages = list(enumerate(s.pages)) if not s.is_sent else []
            end = s.n_computed + (1 + len(row.drafts) if row.drafts else row.count) + n_steps - 1
            while len(s.pages) * PAGE_TOKENS < end:
                s.pages.append(self._free_pages.pop())
                fresh_pages.append((len(s.pages) - 1, s.pages[-1]))
            if not s.is_sent:
                new.append(_entry_of(s))
                new_tokens += s.tokens
                s.is_sent = True
            page_slots += [s.slot] * len(fresh_pages)
            page_indices += [index for index, _ in fresh_pages]
            page_ids += [page for _, page in fresh_pages]
            samples.append(int(bool(row.drafts) or s.n_computed + row.count == s.n_known))
        counts = [1 + len(row.drafts) if row.drafts else row.count for row in rows]
        plan = Plan(
            epoch=self.epoch,
            step=self.step,
            n_steps=n_steps,
            new=new,
            new_tokens=int32s(new_tokens),
            page_slots=int32s(page_slots),
            page_indices=int32s(page_indices),
            page_ids=int32s(page_ids),
            row_slots=int32s(row.sequence.slot for row in rows),
            row_starts=int32s(row.sequence.n_computed for row in rows),
            row_counts=int32s(counts),
            row_samples=int32s(samples),
            draft_counts=int32s([len(row.drafts) for row in rows] if any(row.drafts for row in rows) else []),
            draft_ids=int32s([token for row in rows for token in row.drafts]),
            copies=PageCopies(*(int32s(column) for column in zip(*copies, strict=True))) if copies else None,
        )
        self.step += n_steps
        _advance(rows, samples, n_steps)
        return plan

    def read(self, results: list[Result]) -> list[Result]:
        """Take the results' tokens to their sequences."""
        for result in results:
            offset = 0
            for slot, count in zip(result.slots.tolist(), result.counts.tolist(), strict=True):
                s = self.by_slot[slot]
                s.tokens += result.ids[offset : offset + count].tolist()
                offset += count
                if s.n_known < len(s.tokens):  # a row with drafts: only the result says how far it came
                    s.n_known = len(s.tokens)
                    s.n_computed = len(s.tokens) - 1
            assert offset == len(result.ids)
        return results

    def run(self, rows: list[Row], n_steps: int = 1) -> list[Result]:
        """Write, launch and collect one plan."""
        results = self.read(list(self.engine.collect(self.engine.launch(self.write_plan(rows, n_steps)))))
        self.engine.look_ahead()
        return results

    def prefill(self, *sequences: Running) -> None:
        """Compute all known tokens of these sequences in one step, and sample."""
        self.run([Row(s, len(s.tokens) - s.n_computed) for s in sequences])

    def decode(self, sequences: list[Running], n: int) -> None:
        """`n` steps of one token for each sequence."""
        for _ in range(n):
            self.run([Row(s) for s in sequences])


def _entry_of(sequence: Running) -> NewSequence:
    return NewSequence(
        slot=sequence.slot,
        n_tokens=len(sequence.tokens),
        n_prompt=sequence.n_prompt,
        sampling=sequence.sampling,
        terms=RankTerms(min_tokens=sequence.min_tokens, stop_tokens=sequence.banned_tokens),
        grammar=sequence.grammar,
        end_tokens=sequence.end_tokens,
        rules=sequence.rules,
        prompt_logprobs=sequence.prompt_logprobs,
        request=f"request of slot {sequence.slot}",
    )


def _advance(rows: list[Row], samples: list[int], n_steps: int) -> None:
    """Rows without drafts stand where the plan leaves them; those with drafts wait for the result."""
    for row, sampled in zip(rows, samples, strict=True):
        if not row.drafts:
            row.sequence.n_computed += row.count + n_steps - 1
            row.sequence.n_known += sampled * n_steps
