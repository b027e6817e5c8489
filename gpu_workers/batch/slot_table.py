"""A rank's own copy of the slots: number of known tokens, pages and sampling of each. Plans are checked against it. Pure.

The table counts sampled tokens but does not hold them: they stay on the device. `apply` checks the whole plan on copies and
writes only if all of it is right, so a refused plan changes nothing.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from operator import or_

import numpy as np

from gpu_workers.batch.prompt_rows import PromptTable
from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.engine import PlanRefused
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence, PageCopies, Plan


class SlotTable:
    """Slots of one rank: known tokens, sampling, page tables."""

    def __init__(self, capacity: EngineCapacity) -> None:
        self.capacity = capacity
        # Tokens of each slot whose values the device has; 0: the slot is free. After drafts it is an upper bound.
        self.n_known = np.zeros(capacity.n_slots, np.int64)
        self.n_pages_held = np.zeros(capacity.n_slots, np.int64)  # entries of page_table that are set, from index 0
        self.page_table = np.zeros((capacity.n_slots, -(-capacity.max_length // PAGE_TOKENS)), np.int32)
        self.sampling = SamplingTable(capacity.n_slots)
        self.prompts = PromptTable()

    def apply(self, plan: Plan) -> None:
        """Apply a plan's differences: the table is then as after all of the plan's steps.

        Raises: PlanRefused naming the field, what was expected and what came.
        """
        known, held = self.n_known.copy(), self.n_pages_held.copy()
        self._check_new(plan, known, held)
        self._check_pages(plan, known, held)
        if plan.copies is not None:
            self._check_copies(plan.copies, plan.row_slots)
        self._check_shape(plan)
        self._check_rows(plan, known, held)
        self.n_known, self.n_pages_held = known, held
        for new in plan.new:
            self.sampling.put(new)
            self.prompts.enter(new)
        self.page_table[plan.page_slots, plan.page_indices] = plan.page_ids

    def _check_new(self, plan: Plan, known: np.ndarray, held: np.ndarray) -> None:
        slots = [new.slot for new in plan.new]
        if len(set(slots)) != len(slots):
            raise PlanRefused(f"new: expected distinct slots, got {slots[:16]}", slots)
        for new in plan.new:
            self._check_sequence(new)
            known[new.slot], held[new.slot] = new.n_tokens, 0
        if len(plan.new_tokens):
            self._check_range("new_tokens", plan.new_tokens, self.capacity.vocabulary, np.asarray(slots))

    def _check_sequence(self, new: NewSequence) -> None:
        if new.slot >= self.capacity.n_slots:
            raise PlanRefused(f"new.slot: expected less than {self.capacity.n_slots}, got {new.slot}")
        if not 1 <= new.n_tokens <= self.capacity.max_length:
            limit = self.capacity.max_length
            raise PlanRefused(f"new.n_tokens: expected 1 to {limit}, got {new.n_tokens}", [new.slot])
        if new.n_prompt > new.n_tokens:
            raise PlanRefused(f"new.n_prompt: expected at most {new.n_tokens}, got {new.n_prompt}", [new.slot])
        used = new.terms.used_tokens
        if used:
            self._check_range("new.terms", np.array(used, np.int64), self.capacity.vocabulary, np.array([new.slot]))
        if new.rules is not None:
            named = [*new.rules.biased, *(new.rules.allowed or ()), *chain.from_iterable(new.rules.bad)]
            self._check_range("new.rules", np.array(named, np.int64), self.capacity.vocabulary, np.array([new.slot]))
            if not all(new.rules.bad) or len(new.rules.biased) != len(new.rules.biases):
                raise PlanRefused("new.rules: expected a bias for each id, and bad sequences of at least one token", [new.slot])

    def _check_pages(self, plan: Plan, known: np.ndarray, held: np.ndarray) -> None:
        if not len(plan.page_slots):
            return
        slots = plan.page_slots
        self._check_range("page_slots", slots, self.capacity.n_slots, slots[:0])
        self._check_range("page_indices", plan.page_indices, self.page_table.shape[1], slots)
        self._check_range("page_ids", plan.page_ids, self.capacity.n_pages, slots)
        order = np.lexsort((plan.page_indices, slots))
        slot, index = slots[order].astype(np.int64), plan.page_indices[order].astype(np.int64)
        is_first = np.concatenate(([True], slot[1:] != slot[:-1]))
        before = np.where(is_first, held[slot] - 1, np.concatenate(([0], index[:-1])))
        is_wrong = (index > before + 1) | (known[slot] == 0) | (~is_first & (index == before))
        if is_wrong.any():
            bad = int(is_wrong.argmax())
            raise PlanRefused(
                f"page_indices: expected no gap, no repeat and a sequence in slot {slot[bad]}, got index {index[bad]}",
                slot[is_wrong],
            )
        np.maximum.at(held, slot, index + 1)

    def _check_copies(self, copies: PageCopies, suspects: np.ndarray) -> None:
        self._check_range("copies.sources", copies.sources, self.capacity.n_pages, suspects)
        self._check_range("copies.targets", copies.targets, self.capacity.n_pages, suspects)
        if len(copies.tokens) and not 1 <= int(copies.tokens.min()) <= int(copies.tokens.max()) <= PAGE_TOKENS:
            bad = next(n for n in copies.tokens.tolist() if not 1 <= n <= PAGE_TOKENS)
            raise PlanRefused(f"copies.tokens: expected 1 to {PAGE_TOKENS}, got {bad}", suspects)
        written = set(copies.targets.tolist())
        if len(written) != len(copies.targets) or not written.isdisjoint(copies.sources.tolist()):
            raise PlanRefused(
                f"copies.targets: expected distinct pages, none of which is copied, got {copies.targets[:16].tolist()} of "
                f"{copies.sources[:16].tolist()}",
                suspects,
            )

    def _check_shape(self, plan: Plan) -> None:
        limit, drafts = self.capacity, plan.draft_counts
        n_tokens = int(plan.row_counts.sum(dtype=np.int64))
        if n_tokens > limit.max_step_tokens:
            raise PlanRefused(f"row_counts: expected at most {limit.max_step_tokens} tokens, got {n_tokens}", plan.row_slots)
        if plan.n_steps > limit.max_lease_steps:
            raise PlanRefused(f"n_steps: expected at most {limit.max_lease_steps}, got {plan.n_steps}", plan.row_slots)
        if plan.n_steps > 1 and (len(drafts) or (plan.row_counts != 1).any() or (plan.row_samples != 1).any()):
            raise PlanRefused("n_steps: expected a lease of sampling rows of one token without drafts", plan.row_slots)
        if len(drafts):
            self._check_range("draft_ids", plan.draft_ids, limit.vocabulary, plan.row_slots)
            is_wrong = (drafts < 0) | ((drafts > 0) & ((plan.row_counts != drafts + 1) | (plan.row_samples != 1)))
            if is_wrong.any():
                raise PlanRefused("draft_counts: expected sampling rows of drafts + 1 tokens", plan.row_slots[is_wrong])

    def _check_rows(self, plan: Plan, known: np.ndarray, held: np.ndarray) -> None:
        slots = plan.row_slots
        if not len(slots):
            return
        self._check_range("row_slots", slots, self.capacity.n_slots, slots[:0])
        if np.bincount(slots).max() > 1:
            raise PlanRefused("row_slots: expected distinct slots", slots[np.bincount(slots)[slots] > 1])
        starts, counts = plan.row_starts.astype(np.int64), plan.row_counts.astype(np.int64)
        ends = starts + counts + (plan.n_steps - 1)
        drafts = plan.draft_counts if len(plan.draft_counts) else 0
        is_sampled = plan.row_samples == 1
        checks = {
            "row_samples: expected 0 or 1": (plan.row_samples & ~1) != 0,
            "row_starts: expected 0 or more": starts < 0,
            "row_counts: expected 1 or more": counts < 1,
            "row_slots: expected a sequence in the slot": known[slots] == 0,
            f"row_counts: expected positions below {self.capacity.max_length}": ends > self.capacity.max_length,
            "row_counts: expected known tokens only": starts + counts - drafts > known[slots],
            "page_ids: expected a page for every position of the row": ends > held[slots] * PAGE_TOKENS,
        }
        # one look at the numbers of a right plan: on few rows each look costs more than a comparison
        for reason, is_wrong in checks.items() if reduce(or_, checks.values()).any() else ():
            if is_wrong.any():
                bad = int(is_wrong.argmax())
                raise PlanRefused(
                    f"{reason}, got slot {slots[bad]} with tokens {starts[bad]} to {ends[bad]} of {known[slots[bad]]} known, "
                    f"{held[slots[bad]]} pages",
                    slots[is_wrong],
                )
        known[slots[is_sampled]] = ends[is_sampled] + 1

    @staticmethod
    def _check_range(field: str, values: np.ndarray, limit: int, suspects: np.ndarray) -> None:
        if len(values) and (int(values.min()) < 0 or int(values.max()) >= limit):
            bad = values[(values < 0) | (values >= limit)][0]
            raise PlanRefused(f"{field}: expected 0 to {limit - 1}, got {bad}", suspects)
