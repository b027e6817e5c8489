"""Runs urgent plans on a CUDA stream of high priority, beside the steps on the usual stream, which wait at their next gate
(`gpu_workers.batch.step_gate`) until it has ended.

    usual stream     step 7 | step 8 (both launched before) .......... | waits | step 10
    urgent stream       step 9 ......................................... |

The urgent step waits for nothing on the usual stream, and what is launched there later waits for it. So it runs beside those
steps only that were launched before it, and what it shares with them is written by one side alone:

- token table, page tables, sampling rows: a plan writes the rows of its own slots, and the scheduler takes a slot for the
  urgent plan that no plan in flight has touched;
- keys and values: it writes pages that no plan in flight writes or copies, and reads pages whose plans have been applied, so
  the host has waited for the events after them;
- copies to and from the host tier wait for the usual stream, which waits for the urgent one; `CopyQueue.hold` makes the urgent
  stream wait for copies that use its pages;
- memory for activations: its captured graphs have a pool of their own, and torch's allocator keeps the blocks of each stream
  apart, pinned ones included;
- counts of tokens for penalties: a row for each slot;
- dummy slot and dummy page: both sides write there, and nobody uses what they hold;
- the counters of kernels whose last program joins the results (`kernels.launch.arrivals`) are used by rows of one token and by
  deterministic kernels. It has no such rows, and `WorkerSettings.beside_tokens` gives 0 for such kernels, and for pages whose
  keys are widened into memory that all steps share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gpu_workers.batch.step_gate import StepGate
from gpu_workers.engine import PlanRefused
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.runner.pending_step import PendingStep, read_step
from messages.steps import Plan, Result

if TYPE_CHECKING:
    from gpu_workers.graphs.graph_pool import GraphPool  # these import Triton
    from gpu_workers.graphs.mixed_graphs import MixedGraphs

_HIGH = -5  # the highest priority of streams; torch takes the nearest one that there is
_LEAST_TOKENS = 2  # of a row


class BesideRunner(ModelRunner):
    """The engine of one GPU that runs an urgent plan beside others."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """As `ModelRunner`. Captures urgent steps if other steps are captured."""
        super().__init__(*args, **named)
        self._device = self._state.device
        self._gate = self._model.parts.attention.gate or StepGate(self._device)
        self._stream = torch.cuda.Stream(self._device, priority=_HIGH)
        self._urgent = self._capture()  # None: nothing is captured

    def launch(self, plan: Plan) -> Iterable[PendingStep]:
        """As of `ModelRunner`. Raises: PlanRefused."""
        return self._launch_beside(plan) if plan.is_urgent else super().launch(plan)

    def collect(self, launched: Iterable[PendingStep]) -> Iterator[Result]:
        """As of `ModelRunner`; the urgent step has no grammars, so it is of no concern to `look_ahead`."""
        pending = list(launched)
        if pending and pending[0].plan.is_urgent:
            yield from map(read_step, pending)
        else:
            yield from super().collect(pending)

    @torch.inference_mode()
    def _launch_beside(self, plan: Plan) -> list[PendingStep]:
        slots = plan.row_slots[plan.row_counts < _LEAST_TOKENS]
        if len(slots) or plan.n_steps != 1 or plan.copies is not None or any(new.grammar for new in plan.new):
            raise PlanRefused("urgent plan: expected one step without copies, grammars and rows of one token", slots)
        usual = torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.stream(self._stream):
                self._admit(plan)
                if self._graphs is not None:
                    self._graphs.pool.counts.invalidate(np.array([new.slot for new in plan.new], np.int64))
                with self._gate.urgent():  # closed last: what the admission waits for must not wait for the gate
                    return [self._run_urgent(plan)]
        finally:
            usual.wait_stream(self._stream)

    def _capture(self) -> tuple[GraphPool, MixedGraphs] | None:
        """Captures urgent steps, if other steps are captured."""
        if self._graphs is None:
            return None
        from gpu_workers.runner.cuda_backend import capture_urgent_graphs

        with self._gate.without():
            return capture_urgent_graphs(self._model, self._kv, self._graphs, self._capacity.beside_tokens, _HIGH)

    def _run_urgent(self, plan: Plan) -> PendingStep:
        """As a graph of its own, or kernel by kernel if none fits."""
        pending = self._run_mixed(plan, *self._urgent) if self._urgent is not None and self._is_captured(plan) else None
        return pending or self._run_step(plan, 0)
