"""Runs the steps of one stage of a pipeline.

    first stage       tokens  ->  layers  ->  hidden states to the next stage;  later: sampled tokens into the token table
    stage between     hidden states of the stage before  ->  layers  ->  hidden states to the next stage
    last stage        hidden states  ->  layers  ->  logits, sampling, result  ->  sampled tokens to the first stage

Every rank gets every plan. A step of sequences whose last tokens are known to the first stage begins there while later stages
still compute earlier steps. So several steps are under way where each one has sequences of its own, and the scheduler plans
them so (`Cohorts`). The first stage waits for the tokens of a step when a plan names one of its slots.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.step_arrays import StepArrays, build_step
from gpu_workers.batch.step_tensors import build_batch
from gpu_workers.batch.uploads import upload
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model
from gpu_workers.pipeline.link import AwaitedIds, StageParts
from gpu_workers.runner.backend import CapturedSteps
from gpu_workers.runner.beside_runner import BesideRunner
from gpu_workers.runner.model_runner import ModelRunner, SampleTokens
from gpu_workers.runner.pending_step import PendingStep, timed_event
from messages.steps import EngineCapacity, Plan, Result
from messages.wire.arrays import int32s

_NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True)
class AwaitedStep:
    """A step whose sampled tokens are on their way to the first stage."""

    slots: np.ndarray  # [N] int32: of the rows that sample
    places: torch.Tensor  # [S] int64, on the device: flat indices into `DeviceState.tokens`
    ids: AwaitedIds


class SampledTokens:
    """The sampled tokens that the first stage has not written into its token table yet, oldest first."""

    def __init__(self, state: DeviceState, most: int) -> None:
        """most: steps that may be awaited after `take_for`."""
        self._state, self._most = state, most
        self._awaited: deque[AwaitedStep] = deque()

    def expect(self, step: StepArrays, stages: StageParts) -> None:
        """A step is on its way through the pipeline."""
        places = upload(self._state.places(step.sample_slots, step.sample_positions), self._state.device)
        self._awaited.append(AwaitedStep(step.result_slots, places, stages.link.expect_ids(len(step.sample_slots))))

    def take_for(self, plan: Plan) -> None:
        """Write the tokens that a plan may need: those of every step up to the last one that shares a slot with it."""
        touched = np.zeros(self._state.n_slots + 1, bool)
        for slots in (plan.row_slots, plan.page_slots, np.array([new.slot for new in plan.new], np.int64)):
            touched[slots.clip(0, self._state.n_slots)] = True  # a wrong slot is refused later
        needed = [index + 1 for index, step in enumerate(self._awaited) if touched[step.slots].any()]
        self._take(max([len(self._awaited) - self._most, *needed]))

    def take_all(self) -> None:
        """Write the tokens of every step. They are on their way, because every rank runs every plan."""
        self._take(len(self._awaited))

    def _take(self, n: int) -> None:
        for _ in range(n):
            step = self._awaited.popleft()
            self._state.tokens.view(-1).index_copy_(0, step.places, step.ids.wait().to(torch.int32))


class EarlyStageRunner(ModelRunner):
    """The engine of a stage before the last one: it samples nothing, and its results are empty."""

    def __init__(
        self,
        model: Model,
        stages: StageParts,
        kv: KvPages,
        state: DeviceState,
        capacity: EngineCapacity,
        captured: CapturedSteps,
        grammars: GrammarTable | None = None,
    ) -> None:
        super().__init__(model, kv, state, capacity, captured, grammars=grammars)
        self._stages = stages
        self._sampled_ids = SampledTokens(state, stages.stage.size) if stages.stage.is_first else None

    def reset(self, epoch: int) -> None:
        """Forget all slots, once the tokens of all steps have come."""
        if self._sampled_ids is not None:
            self._sampled_ids.take_all()
        super().reset(epoch)

    @torch.inference_mode()
    def launch(self, plan: Plan) -> Iterable[PendingStep]:
        """Run the plan's step through the layers of this stage. Raises: PlanRefused."""
        if self._sampled_ids is not None:
            self._sampled_ids.take_for(plan)
        self._admit(plan)
        return [self._run_stage(plan, index) for index in range(plan.n_steps)]

    def collect(self, launched: Iterable[PendingStep]) -> Iterator[Result]:
        """Wait for each step. The results have no rows: the last stage reports the tokens."""
        for pending in launched:
            if pending.events is not None:
                pending.events[1].synchronize()
            yield Result(
                epoch=pending.plan.epoch,
                step=pending.number,
                slots=int32s([]),
                counts=int32s([]),
                ids=int32s([]),
                compute_s=pending.seconds(),
            )

    def _run_stage(self, plan: Plan, index: int) -> PendingStep:
        events = (timed_event(), timed_event()) if self._is_cuda else None
        began_s = time.monotonic()
        if events is not None:
            events[0].record()
        step = build_step(plan, self._slots.page_table, index)
        if len(step.slots) and not self._replay(plan, step):
            self._model.forward(build_batch(step, self._state).tensors, self._kv)
        if self._sampled_ids is not None and len(step.sample_slots):
            self._sampled_ids.expect(step, self._stages)
        if events is not None:
            events[1].record()
        took_s = time.monotonic() - began_s
        ids = torch.zeros(0, dtype=torch.int64)
        return PendingStep(plan, plan.step + index, _NOTHING, _NOTHING, ids, None, took_s, events)

    def _replay(self, plan: Plan, step: StepArrays) -> bool:
        """Queue the captured step of this plan, the same as on the last stage. False, and nothing done, if there is none."""
        if self._graphs is None or not self._is_captured(plan):
            return False
        if self._is_decode(plan, self._graphs):
            self._graphs.decode.run(
                plan.row_slots.astype(np.int64), plan.row_starts.astype(np.int64), plan.n_steps, lambda step: None
            )
            return True
        return self._graphs.mixed is not None and self._graphs.mixed.run(step)


class LastStageRunner(ModelRunner):
    """The engine of the last stage: the first one gets each step's sampled tokens."""

    def _sampled(self, ids: torch.Tensor) -> None:
        stages = self._model.parts.stages
        assert stages is not None, "the model is one of several stages"
        if len(ids):  # a captured step may sample nothing, and then the first stage expects nothing
            stages.link.send_ids(ids)


def make_runner(
    model: Model,
    kv: KvPages,
    state: DeviceState,
    capacity: EngineCapacity,
    captured: CapturedSteps,
    sample: SampleTokens | None = None,
    grammars: GrammarTable | None = None,
) -> ModelRunner:
    """The runner for the model's stage; for a model without stages a plain one, or one that runs urgent plans beside others.
    Arguments: as for `ModelRunner`."""
    stages = model.parts.stages
    if stages is None:
        kind = BesideRunner if capacity.runs_beside else ModelRunner
        return kind(model, kv, state, capacity, captured, sample, grammars)
    if stages.stage.is_last:
        return LastStageRunner(model, kv, state, capacity, captured, sample, grammars)
    return EarlyStageRunner(model, stages, kv, state, capacity, captured, grammars)
