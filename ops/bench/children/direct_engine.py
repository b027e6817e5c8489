"""The worker's engine without any actor: the same settings, the same plans, one loop in one process.

What the actors cost is the difference to this. Lengths are known beforehand and end-of-sequence is ignored, so every plan can
be written without looking at a single sampled token: this is the least that any driver of the engine could do.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_workers.engine import Engine
from messages.generation.sampling import Sampling
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence, Plan
from messages.wire.arrays import int32s


@dataclass(frozen=True)
class DirectJob:
    """One sequence: its prompt and how many tokens to generate."""

    prompt: Sequence[int]
    n_output: int

    @property
    def n_pages(self) -> int:
        """Pages that it will need at its end (the last token's own key is never written)."""
        return -(-(len(self.prompt) + self.n_output - 1) // PAGE_TOKENS)


@dataclass(frozen=True)
class DirectTimes:
    """What a run took, in seconds."""

    wall_s: float
    first_token_s: float  # until the first sampled token of all came back
    prefill_s: float  # until the last prompt was computed
    n_plans: int
    n_steps: int
    processor_s: float = 0.0  # of all threads of this process, after the last prompt


@dataclass
class _Running:
    job: DirectJob
    slot: int
    pages: list[int]
    n_computed: int = 0
    n_left: int = 0  # tokens still to sample

    @property
    def n_prompt_left(self) -> int:
        return len(self.job.prompt) - self.n_computed


@dataclass
class _Draft:
    """The parts of a plan while it is being written."""

    new: list[NewSequence] = field(default_factory=list)
    new_tokens: list[int] = field(default_factory=list)
    page_slots: list[int] = field(default_factory=list)
    page_indices: list[int] = field(default_factory=list)
    page_ids: list[int] = field(default_factory=list)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)  # slot, start, count, sample


class DirectRun:
    """Runs jobs through an engine: decodes first, then prompts in chunks within the step's token budget, first come first."""

    def __init__(self, engine: Engine, jobs: Sequence[DirectJob], sampling: Sampling, epoch: int) -> None:
        self._engine, self._sampling, self._epoch = engine, sampling, epoch
        self._capacity: EngineCapacity = engine.capacity()
        self._waiting = deque(jobs)
        self._prefilling: deque[_Running] = deque()
        self._decoding: list[_Running] = []
        self._free_slots = list(range(self._capacity.n_slots))[::-1]
        self._free_pages = list(range(self._capacity.n_pages))[::-1]
        self._step = self._n_plans = 0
        self._first_token_s = self._prefill_s = self._prefill_processor_s = 0.0

    def run(self) -> DirectTimes:
        """Everything from the first plan to the last result."""
        self._engine.reset(self._epoch)
        began_s = time.perf_counter()
        launched: deque[tuple[object, bool]] = deque()
        while self._waiting or self._prefilling or self._decoding:
            had_prompts = bool(self._waiting or self._prefilling)
            launched.append((self._engine.launch(self._next_plan()), had_prompts))
            while len(launched) >= self._engine.max_in_flight:
                self._collect(*launched.popleft(), began_s)
        while launched:
            self._collect(*launched.popleft(), began_s)
        wall_s = time.perf_counter() - began_s
        processor_s = time.process_time() - self._prefill_processor_s
        return DirectTimes(wall_s, self._first_token_s, self._prefill_s, self._n_plans, self._step, processor_s)

    def _collect(self, launched: object, had_prompts: bool, began_s: float) -> None:
        for result in self._engine.collect(launched):
            if not self._first_token_s and len(result.ids):
                self._first_token_s = time.perf_counter() - began_s
        if had_prompts:
            self._prefill_s = time.perf_counter() - began_s
            self._prefill_processor_s = time.process_time()

    def _next_plan(self) -> Plan:
        self._admit()
        draft = _Draft()
        lease = 1
        if not self._prefilling and not (self._waiting and self._free_slots):
            lease = min(self._capacity.max_lease_steps, min(running.n_left for running in self._decoding))
        decoding, self._decoding = self._decoding, []
        budget = self._capacity.max_step_tokens - len(decoding)
        for running in decoding:
            draft.rows.append((running.slot, running.n_computed, 1, 1))
            running.n_computed += lease
            self._sampled(running, lease)
        while self._prefilling and budget > 0:
            running = self._prefilling[0]
            count = min(running.n_prompt_left, budget)
            budget -= count
            if running.n_computed == 0:
                self._introduce(draft, running)
            is_last = count == running.n_prompt_left
            draft.rows.append((running.slot, running.n_computed, count, int(is_last)))
            running.n_computed += count
            if is_last:
                self._prefilling.popleft()
                self._sampled(running, 1)
        return self._plan(draft, lease)

    def _admit(self) -> None:
        while self._waiting and self._free_slots and self._waiting[0].n_pages <= len(self._free_pages):
            job = self._waiting.popleft()
            pages = [self._free_pages.pop() for _ in range(job.n_pages)]
            self._prefilling.append(_Running(job, self._free_slots.pop(), pages, 0, job.n_output))
        if not self._prefilling and not self._decoding:
            raise ValueError(f"jobs: expected one to fit {self._capacity.n_pages} pages, got {self._waiting[0].n_pages}")

    def _introduce(self, draft: _Draft, running: _Running) -> None:
        n = len(running.job.prompt)
        draft.new.append(NewSequence(slot=running.slot, n_tokens=n, n_prompt=n, sampling=self._sampling))
        draft.new_tokens += running.job.prompt
        draft.page_slots += [running.slot] * len(running.pages)
        draft.page_indices += range(len(running.pages))
        draft.page_ids += running.pages

    def _sampled(self, running: _Running, count: int) -> None:
        """Count sampled tokens of a sequence; slot and pages of a finished one are free for later plans, which run later."""
        running.n_left -= count
        if running.n_left:
            self._decoding.append(running)
        else:
            self._free_slots.append(running.slot)
            self._free_pages += running.pages

    def _plan(self, draft: _Draft, n_steps: int) -> Plan:
        rows = np.array(draft.rows, np.int32)
        plan = Plan(
            epoch=self._epoch,
            step=self._step,
            n_steps=n_steps,
            new=draft.new,
            new_tokens=int32s(draft.new_tokens),
            page_slots=int32s(draft.page_slots),
            page_indices=int32s(draft.page_indices),
            page_ids=int32s(draft.page_ids),
            row_slots=int32s(rows[:, 0]),
            row_starts=int32s(rows[:, 1]),
            row_counts=int32s(rows[:, 2]),
            row_samples=int32s(rows[:, 3]),
        )
        self._step += n_steps
        self._n_plans += 1
        return plan


def load_engine(settings: bytes, environment: dict[str, str]) -> Engine:
    """The engine of a worker with these settings, in this process. Call it before anything has imported torch."""
    from pathlib import Path

    from gpu_workers.process.engine_loading import build_engine
    from gpu_workers.settings import read_settings

    os.environ.update(environment)
    return build_engine(read_settings(settings), Path("/nonexistent"), lambda phase, fraction: None)
