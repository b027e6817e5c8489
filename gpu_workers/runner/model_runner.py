"""Runs one rank's model: plans in, sampled ids out.

    admit the plan (slot table)  ->  write its differences to the device (tokens, pages, sampling, drafts)
    each step: index arrays  ->  layers  ->  logits  ->  sample  ->  ids into the token table  ->  copy of the ids to the host

Nothing waits for the host: the ids are in the device's token table before the next plan is launched. On a CPU all work is done
when `launch` returns. On CUDA it is queued, and `collect` waits for the event after each step. All but the largest steps are
captured graphs, which apply every sampling rule; rows that have a grammar are sampled after them, by a graph that waits for
masks, which `collect` gives while the layers run. In a gang every rank samples from the same gathered logits with the same
noise, so all token tables stay equal without any message between the ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from llguidance import LLMatcher

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.prompt_rows import PromptRows
from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.batch.step_arrays import StepArrays, build_step
from gpu_workers.batch.step_tensors import NO_TOKENS, build_batch
from gpu_workers.batch.uploads import copy_staged, upload
from gpu_workers.cuda.compile_watch import watch_triton
from gpu_workers.engine import Engine
from gpu_workers.grammar.grammar_step import GrammarStep
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.runner.backend import CapturedSteps
from gpu_workers.runner.pending_step import PendingStep, read_step, timed_event
from gpu_workers.sampling.logprobs import ComputedLogprobs, compute_logprobs
from gpu_workers.sampling.masked_logits import mask_logits
from gpu_workers.sampling.prompt_logprobs import ComputedPrompts, compute_prompt_logprobs
from gpu_workers.sampling.sampler import sample_tokens
from gpu_workers.vault.returned_pages import return_pages
from messages.steps import EngineCapacity, Plan, Result, StepTime

if TYPE_CHECKING:
    from gpu_workers.graphs.cuda_graphs import StepGraphs  # these import Triton
    from gpu_workers.graphs.graph_pool import GraphPool
    from gpu_workers.graphs.mixed_graphs import MixedGraphs

SampleTokens = Callable[[torch.Tensor, SamplingRows], torch.Tensor]  # logits [S, vocabulary] float32, rows -> ids [S] int64


@dataclass(frozen=True)
class ComputedStep:
    """The output of the layers, from which tokens are sampled. Tensors are on the model's device."""

    logits: torch.Tensor | None  # [S, vocabulary] of the model's dtype; None: nothing is sampled
    places: torch.Tensor  # [S] int64: see StepBatch.sample_places
    greedy: torch.Tensor | None = None  # [S] int64: the greedy tokens, if they were computed with the logits
    prompts: ComputedPrompts | None = None


class ModelRunner(Engine[Iterable[PendingStep]]):
    """The engine of models: runs steps on one device, captured ones where they fit. Not thread-safe, except `collect`."""

    def __init__(
        self,
        model: Model,
        kv: KvPages,
        state: DeviceState,
        capacity: EngineCapacity,
        captured: CapturedSteps,
        sample: SampleTokens | None = None,
        grammars: GrammarTable | None = None,
    ) -> None:
        """`kv` has one page more than `capacity` promises, the state's dummy page. Steps that fit `captured` run there. sample:
        chooses the tokens that captured steps do not choose; None: `sample_tokens`. grammars: without it, plans with
        grammars are refused."""
        self._model, self._kv, self._state = model, kv, state
        self._capacity = capacity
        self._graphs, self._programs = captured.graphs, captured.programs
        self._is_cuda = state.device.type == "cuda"
        self.max_in_flight = 2 if self._is_cuda else 1
        self.kv_region = kv.region
        self.page_copies: CopyQueue | None = None  # that run beside the steps
        self._compiler = watch_triton() if self._is_cuda else None
        self._slots = SlotTable(capacity)
        self._grammars = grammars or GrammarTable(None)
        self._told: GrammarStep | None = None  # the newest step whose tokens its grammars know, if it has any
        self._has_kernel_sampler = captured.graphs is not None or sample is not None
        self._sample_tokens = sample or (lambda logits, rows: sample_tokens(logits, rows, state.tokens))

    def capacity(self) -> EngineCapacity:
        """What the gang can hold, with the step times of the warm-up once `end_warm_up` has been called."""
        return self._capacity

    @property
    def is_compiling(self) -> bool:
        """True while a step waits for a grammar or for a Triton kernel that is compiled."""
        return self._grammars.is_waiting or (self._compiler is not None and self._compiler.is_compiling)

    @property
    def late_compilations(self) -> int:
        """Triton kernels that were compiled since the warm-up; 0 on a CPU."""
        return self._compiler.n_late if self._compiler is not None else 0

    def end_warm_up(self, times: list[StepTime]) -> None:
        """Add the times of the warm-up to the capacity. Kernels that are compiled from now on are late."""
        self._capacity = msgspec.structs.replace(self._capacity, step_times=times)
        if self._compiler is not None:
            self._compiler.serve()

    def prepare_grammar(self, grammar: str) -> Sequence[Future[LLMatcher]]:
        """Begin to compile a grammar that a later plan will have. Returns what must be done then."""
        return self._grammars.prepare(grammar)

    def reset(self, epoch: int) -> None:
        """Forget all slots. Pages are not cleared: none is read before it is written."""
        self._slots = SlotTable(self._capacity)
        self._grammars.reset()
        if self._graphs is not None and self._graphs.pool.samples:
            self._graphs.pool.counts.invalidate()

    def return_pages(self, pages: np.ndarray) -> None:
        """Give the memory of these pages back. Raises: ValueError for an unknown one."""
        if self._kv.region is not None:
            return_pages(self._kv.region, self._kv.shape.bytes_per_page, self._capacity.n_pages, pages)

    def close(self) -> None:
        """Leave the group of ranks."""
        self._model.parts.group.close()

    @torch.inference_mode()
    def launch(self, plan: Plan) -> Iterable[PendingStep]:
        """Start all steps of a plan. On a CPU those of a lease begin when they are collected. Raises: PlanRefused."""
        arrives = self._admit(plan)
        if self._graphs is not None and plan.new:
            self._graphs.pool.counts.invalidate(np.array([new.slot for new in plan.new], np.int64))
        if self._graphs is not None and self._is_captured(plan):
            return self._run_captured(plan, self._graphs, arrives)
        steps = (self._run_step(plan, index, arrives) for index in range(plan.n_steps))
        return steps if self.max_in_flight == 1 and plan.n_steps > 1 else list(steps)

    def _admit(self, plan: Plan) -> bool:
        """Check a plan and write its differences. True: its pages still arrive. Raises: PlanRefused, with nothing done."""
        self._grammars.check(plan)
        self._slots.apply(plan)
        arrives = self.page_copies is not None and self.page_copies.hold(plan, self._slots)
        self._grammars.enter(plan)
        self._state.write(plan, self._slots.sampling if self._has_kernel_sampler else None)
        if plan.copies is not None:
            self._kv.copy(plan.copies.sources, plan.copies.targets)
        return arrives

    def collect(self, launched: Iterable[PendingStep]) -> Iterator[Result]:
        """Wait for each step of a launched plan and read its result."""
        for pending in launched:
            result = read_step(pending)
            self._told = pending.grammars
            yield result

    def look_ahead(self) -> None:
        """Compute masks of the next step while its plan is on the way."""
        if self._told is not None:
            self._told.look_ahead()
            self._told = None

    def _is_captured(self, plan: Plan) -> bool:
        """True if a captured step may fit. They know neither bad words of several tokens nor log probabilities of prompts."""
        slots = plan.row_slots
        return len(slots) > 0 and not self._slots.sampling.has_bad_sequences(slots) and not self._slots.prompts.has_any(plan)

    def _is_decode(self, plan: Plan, graphs: StepGraphs) -> bool:
        """True if every row computes one token and samples the next, and a captured step has so many rows."""
        n = len(plan.row_slots)
        return bool((plan.row_counts == 1).all() and plan.row_samples.all() and n <= graphs.decode.sizes[-1])

    def _run_captured(self, plan: Plan, graphs: StepGraphs, arrives: bool) -> list[PendingStep]:
        if self._is_decode(plan, graphs):
            return self._run_decode(plan, graphs)
        pending = None
        if graphs.mixed is not None and plan.n_steps == 1:
            pending = self._run_mixed(plan, graphs.pool, graphs.mixed, arrives)
        return [pending] if pending else [self._run_step(plan, index, arrives) for index in range(plan.n_steps)]

    def _run_decode(self, plan: Plan, graphs: StepGraphs) -> list[PendingStep]:
        launched: list[PendingStep] = []
        widths = np.ones(len(plan.row_slots), np.int64)
        slots, positions = plan.row_slots.astype(np.int64), plan.row_starts.astype(np.int64)
        graphs.pool.counts.prepare(slots, positions + 1, plan.n_steps, self._slots.sampling)
        events = [timed_event() for _ in range(plan.n_steps + 1)]
        events[0].record()

        def keep(index: int) -> None:
            grammars = self._grammars.step(plan.row_slots, widths, positions + index + 1, plan.draft_ids)
            ids, logprobs = self._take_samples(graphs.pool, slots, grammars)
            events[index + 1].record()
            around = (events[index], events[index + 1])
            launched.append(PendingStep(plan, plan.step + index, plan.row_slots, widths, ids, logprobs, 0.0, around, grammars))

        graphs.decode.run(slots, positions, plan.n_steps, keep)
        return launched

    def _run_mixed(self, plan: Plan, pool: GraphPool, mixed: MixedGraphs, arrives: bool = False) -> PendingStep | None:
        """Launches one step as a graph. Returns None, with nothing done, when no graph fits."""
        events = (timed_event(), timed_event())
        events[0].record()
        step = build_step(plan, self._slots.page_table)
        if not mixed.run(step, lambda: pool.counts.prepare_mixed(step, self._slots.sampling), arrives=arrives):
            return None
        grammars = self._grammars.step(step.result_slots, step.result_widths, step.sample_positions, plan.draft_ids)
        ids, logprobs = self._take_samples(pool, step.sample_slots, grammars)
        events[1].record()
        at, widths = (plan, plan.step, step.result_slots), step.result_widths
        return PendingStep(*at, widths, ids, logprobs, 0.0, events, grammars, arrives=arrives)

    def _take_samples(
        self, pool: GraphPool, slots: np.ndarray, grammars: GrammarStep | None
    ) -> tuple[torch.Tensor, ComputedLogprobs | None]:
        """The tokens [S] that the last launched graph sampled for slots [S], int64 on the host, and their log probabilities if
        a row asks. The copy is only queued; samples with a grammar wait for their masks before it.

        Whatever is queued behind that wait must not wait for the device on the host, which gives the masks later: memory is
        allocated before, and with log probabilities the masks are given at once."""
        ids, logprobs = torch.empty(len(slots), dtype=torch.int64, pin_memory=True), None
        wanted = self._slots.sampling.logprobs_of(slots)
        if grammars is not None:
            pool.sample_constrained(grammars)
            if (wanted >= 0).any():
                grammars.give()
        if (wanted >= 0).any():
            sampled = pool.ids[: len(slots)]
            logprobs = compute_logprobs(pool.logits[: len(slots)], sampled, wanted).to_host()
        self._sampled(pool.ids[: len(slots)])
        return copy_staged(ids, pool.ids[: len(slots)]), logprobs

    def _sampled(self, ids: torch.Tensor) -> None:
        """The tokens of a step, [S] int64 on the device, are in the token table. The last stage of a pipeline sends them."""

    @torch.inference_mode()
    def _run_step(self, plan: Plan, index: int, arrives: bool = False) -> PendingStep:
        events = (timed_event(), timed_event()) if self._is_cuda else None
        began_s = time.monotonic()
        if events is not None:
            events[0].record()
        step = build_step(plan, self._slots.page_table, index)
        ids, logprobs, grammars, prompts = torch.zeros(0, dtype=torch.int64), None, None, None
        if len(step.slots):
            computed = self._compute(step, self._slots.prompts.rows_of(step), self._kv.arriving if arrives else self._kv)
            prompts = computed.prompts
            if computed.logits is not None:
                rows = self._slots.sampling.gather(step.sample_slots, step.sample_positions)
                grammars = self._grammars.step(step.result_slots, step.result_widths, step.sample_positions, plan.draft_ids)
                ids, logprobs = self._sample(computed, computed.logits, rows, grammars)
        if events is not None:
            events[1].record()
        took_s = time.monotonic() - began_s
        at, widths = (plan, plan.step + index, step.result_slots), step.result_widths
        return PendingStep(*at, widths, ids, logprobs, took_s, events, grammars, prompts, arrives)

    def _compute(self, step: StepArrays, prompt_rows: PromptRows | None, kv: KvPages) -> ComputedStep:
        recorded = self._programs.run(step) if self._programs is not None and prompt_rows is None else None
        if recorded is not None:
            places = torch.from_numpy(self._state.places(step.sample_slots, step.sample_positions))
            return ComputedStep(recorded.logits, places, recorded.greedy)
        batch = build_batch(step, self._state, prompt_rows.index if prompt_rows is not None else NO_TOKENS)
        hidden, n_samples, prompts = self._model.forward(batch.tensors, kv), len(step.sample_index), None
        if prompt_rows is not None:
            hidden, prompts = hidden[:n_samples], self._score(prompt_rows, hidden[n_samples:])
        return ComputedStep(self._model.logits(hidden) if n_samples else None, batch.sample_places, prompts=prompts)

    def _score(self, rows: PromptRows, hidden: torch.Tensor) -> ComputedPrompts:
        places = upload(self._state.places(rows.token_slots, rows.next_positions), hidden.device)
        ids = self._state.tokens.view(-1).index_select(0, places).to(torch.int64)
        return compute_prompt_logprobs(rows, hidden, ids, self._model.logits, self._capacity.vocabulary).to_host()

    def _sample(
        self, computed: ComputedStep, logits: torch.Tensor, rows: SamplingRows, grammars: GrammarStep | None
    ) -> tuple[torch.Tensor, ComputedLogprobs | None]:
        logprobs = None
        if computed.greedy is not None and rows.is_all_greedy and grammars is None:
            ids = computed.greedy.clone()  # the next step writes there
        else:
            masked = logits = logits.float()
            if grammars is not None:  # log probabilities are the model's
                masked = mask_logits(logits, grammars.masks(), in_place=not rows.wants_logprobs)
            ids = self._sample_tokens(masked, rows)
        self._state.tokens.view(-1).index_copy_(0, computed.places, ids.to(torch.int32))
        self._sampled(ids)
        if rows.wants_logprobs:
            logprobs = compute_logprobs(logits, ids, rows.logprobs).to_host()
        return ids.to("cpu", non_blocking=True), logprobs
