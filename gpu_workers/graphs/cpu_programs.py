"""Runs steps of few tokens on CPUs as one native call each, as captured graphs do on GPUs.

For each number of tokens the model is run once with kernel calls that are recorded instead of made. After that a step only
writes a few numbers to fixed memory and makes one call. A step of one row of SmolLM2 makes 274 calls: one by one they took
14.7 ms on two Zen 4 cores, as one call 11.3 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import structlog
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cpu.attention import CpuAttention, CpuStep
from gpu_workers.cpu.kernels.calls import BufferPool, NotRecordable, Program, Recorder
from gpu_workers.cpu.kernels.machine_code import compile_kernel
from gpu_workers.cpu.kernels.program import write_program
from gpu_workers.cpu.ops import CpuOps
from gpu_workers.layers.attention import MAX_BATCHED_COUNT, Attention
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model, RecordableModel
from messages.steps import PAGE_TOKENS

_TOKEN_IDS, _POSITIONS, _SLOT_MAPPING, _PLACES, _SLOTS, _N_KEYS = range(6)


@dataclass(frozen=True)
class RecordedStep:
    """A recorded program and the tensors that hold its results."""

    program: Program
    logits: torch.Tensor  # [S, vocabulary] of the model's dtype, in the order of the step's samples
    greedy: torch.Tensor  # [S] int64: the lowest of the ids with the greatest logit


class _PreparedAttention(Attention):
    """Returns the same prepared step each time, because all runs of a program read their numbers from the same memory."""

    def __init__(self, prepared: CpuStep) -> None:
        self._prepared = prepared

    def prepare(self, step: StepTensors, window: int | None = None) -> CpuStep:
        """The prepared step, whatever `step` is. Raises: NotRecordable for a window."""
        if window is not None:
            raise NotRecordable("attention with a window")
        return self._prepared


class CpuPrograms:
    """Recorded programs for steps that sample after every token: decode rows and drafts to be verified. Not thread-safe."""

    def __init__(self, model: RecordableModel, ops: CpuOps, attention: CpuAttention, kv: KvPages, state: DeviceState) -> None:
        """ops, attention: the model's. Weights, pages and tables must not move afterwards. Compiles their runner.

        Raises: RuntimeError when LLVM refuses the code."""
        self._model, self._ops, self._attention, self._kv, self._state = model, ops, attention, kv, state
        self._runner = compile_kernel(write_program, ops.machine)
        self._pool = BufferPool(ops.most_rows)
        self._numbers = torch.zeros((6, ops.most_rows), dtype=torch.int64)  # the inputs that change from step to step
        self._host_numbers, self._host_tokens = self._numbers.numpy(), state.tokens.numpy()
        self._n_threads = torch.get_num_threads()
        longest = state.pages.shape[1] * PAGE_TOKENS
        self._scratch = torch.empty((self._n_threads, attention.compiled.scratches * model.parts.shard.shared_heads * longest))
        self._programs: dict[int, RecordedStep] = {}
        self._is_possible = model.parts.shard.size == 1 and model.parts.stages is None

    def run(self, step: StepArrays) -> RecordedStep | None:
        """The results of the step, valid until the next run; None, and nothing done, if the step does not fit a program. The
        state must already hold the plan's tokens, pages and drafts."""
        n = len(step.token_slots)
        is_fit = 0 < n == len(step.sample_index) <= self._ops.most_rows and step.counts.max() <= MAX_BATCHED_COUNT
        if not (is_fit and self._is_possible and torch.get_num_threads() == self._n_threads):
            return None
        if n not in self._programs:
            try:
                self._programs[n] = self._record(n)
            except NotRecordable as error:
                structlog.get_logger().info("steps run as single kernel calls", reason=str(error))
                self._is_possible = False
                return None
        self._place(step, n)
        self._programs[n].program.run()
        return self._programs[n]

    def _place(self, step: StepArrays, n: int) -> None:
        """Writes the step's numbers where the program reads them. Tokens are in the order of the samples, so that no result has
        to be gathered at the end."""
        slots, positions = step.token_slots[step.sample_index], step.positions[step.sample_index]
        numbers = self._host_numbers[:, :n]
        numbers[_TOKEN_IDS] = self._host_tokens[slots, positions]
        numbers[_POSITIONS] = positions
        numbers[_SLOT_MAPPING] = step.slot_mapping[step.sample_index]
        order = np.argsort(-positions, kind="stable")  # see CpuAttention.prepare
        numbers[_PLACES] = order
        numbers[_SLOTS] = slots[order]
        numbers[_N_KEYS] = positions[order] + 1

    def _record(self, n: int) -> RecordedStep:
        """Records the program for n tokens. Raises: NotRecordable."""
        self._pool.free_all()
        recorder = Recorder(self._pool)
        ops = self._ops.through(recorder)
        token_ids, positions, slot_mapping, places, slots, n_keys = self._numbers[:, :n]
        nothing, pages = np.zeros(0, np.int32), self._state.pages
        step = StepTensors(
            token_ids=token_ids,
            positions=positions,
            slot_mapping=slot_mapping,
            page_table=pages,
            lengths=pages[:0, 0],
            n_decode=0,
            row_starts=nothing,
            row_counts=nothing,
            row_offsets=nothing,
            sample_index=None,
        )
        compiled = replace(self._attention.compiled, calls=recorder)
        attention = _PreparedAttention(CpuStep(compiled, places, slots, n_keys, pages, self._scratch, ()))
        model = self._model.with_parts(replace(self._model.parts, ops=ops, attention=attention))
        logits = model.logits(model.forward(step, self._kv))
        greedy = ops.argmax(logits)
        return RecordedStep(recorder.finish(self._runner), logits, greedy)


def cpu_programs(model: Model, kv: KvPages, state: DeviceState) -> CpuPrograms | None:
    """The programs of a model that can be recorded and whose operations and attention are CPU kernels; None for any other."""
    ops, attention = model.parts.ops, model.parts.attention
    if not (isinstance(model, RecordableModel) and isinstance(ops, CpuOps) and isinstance(attention, CpuAttention)):
        return None
    try:
        return CpuPrograms(model, ops, attention, kv, state)
    except RuntimeError as error:
        structlog.get_logger().warning("steps run as single kernel calls, which is slower", reason=str(error)[:300])
        return None
