"""Decode steps as captured CUDA graphs: everything from the token table to the sampled ids is one launch.

A graph is captured for each of a few batch sizes, on buffers that never move; a batch takes the next larger size, and the
rows too many are of the dummy slot. The graph reads its tokens and pages from DeviceState by slot and position, writes the
sampled token to `state.tokens[slot, position + 1]` and moves its positions on, so the next step of the same rows is just
another replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpu_workers.device_state import DeviceState
from gpu_workers.kernels.decode_inputs import DecodeInputs, decode_inputs
from gpu_workers.kernels.sampling import SamplingScratch, sample_rows
from gpu_workers.step_tensors import StepTensors

ComputeLogits = Callable[[StepTensors], torch.Tensor]  # the model's step: all n rows are decode rows -> logits [n, vocabulary]
_STAGING_BUFFERS = 8
_WARM_UP_STEPS = 2


def graph_sizes(n_slots: int) -> tuple[int, ...]:
    """Batch sizes worth a graph: 1, 2, 4, 8, then every 8 up to 64, every 16 up to 256, every 64 above; at most n_slots."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, n_slots + 64, 64)]
    return tuple(sorted({min(size, n_slots) for size in sizes}))


@dataclass(frozen=True)
class CapturedStep:
    """One batch size: its graph and the buffers that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    rows: torch.Tensor  # [2 n] int64: slots, then positions
    ids: torch.Tensor  # [n] int64


class DecodeGraphs:
    """Graphs of decode steps whose rows are greedy or have a temperature only; other rows are not for graphs.

    Life: build, `capture()` once after weights and pages are in place (they must not move afterwards), then `run` from the
    one thread and stream that also run all other steps. `compute_logits` is called at capture only, with static tensors and
    host arrays that say nothing (row_starts zero); it must launch kernels on the current stream and do nothing else: no
    synchronisation, no copy from or to the host. Its result may have any float dtype.

    `run(slots, positions, n_steps, on_step)`: the rows of a plan or a lease. Before it the device tables must hold, for each
    row, the token at its position, and pages for all positions that the steps write (queued on the same stream is enough).
    """

    def __init__(self, state: DeviceState, compute_logits: ComputeLogits, sizes: Sequence[int] | None = None) -> None:
        """sizes: batch sizes to capture, `graph_sizes(n_slots)` by default."""
        self._state = state
        self._compute_logits = compute_logits
        self._sizes = tuple(sorted(sizes or graph_sizes(state.n_slots)))
        self._captured: dict[int, CapturedStep] = {}
        largest, device = self._sizes[-1], state.device
        self._rows = torch.zeros(2 * largest, dtype=torch.int64, device=device)
        self._ids = torch.zeros(largest, dtype=torch.int64, device=device)
        self._inputs = DecodeInputs(
            token_ids=torch.zeros(largest, dtype=torch.int64, device=device),
            kv_slots=torch.zeros(largest, dtype=torch.int64, device=device),
            lengths=torch.zeros(largest, dtype=torch.int32, device=device),
            page_table=torch.full((largest, state.pages.shape[1]), state.dummy_page, dtype=torch.int32, device=device),
        )
        self._index = torch.arange(largest, dtype=torch.int64, device=device)
        self._scratch: SamplingScratch | None = None
        self._staging = [torch.empty(2 * largest, dtype=torch.int64, pin_memory=True) for _ in range(_STAGING_BUFFERS)]
        self._staged = [torch.cuda.Event() for _ in range(_STAGING_BUFFERS)]
        self._next_staging = 0

    @property
    def max_rows(self) -> int:
        """The largest batch that `run` takes; 0 before `capture`."""
        return max(self._captured, default=0)

    @torch.inference_mode()
    def capture(self, on_progress: Callable[[float], None] = lambda fraction: None) -> None:
        """Captures all sizes, the largest first so that the smaller ones reuse its memory. Writes to the dummy slot and the
        dummy page only. on_progress gets the fraction done."""
        pool = torch.cuda.graph_pool_handle()
        for done, size in enumerate(reversed(self._sizes)):
            self._captured[size] = self._capture_size(size, pool)
            on_progress((done + 1) / len(self._sizes))
        torch.cuda.synchronize(self._state.device)

    def _capture_size(self, size: int, pool: Any) -> CapturedStep:
        rows, ids = self._rows[: 2 * size], self._ids[:size]
        rows[:size].fill_(self._state.n_slots)
        rows[size:].zero_()
        side = torch.cuda.Stream(self._state.device)
        side.wait_stream(torch.cuda.current_stream(self._state.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_STEPS):  # compiles kernels, lets libraries allocate what a capture may not
                self._step(size)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=side):
            self._step(size)
        return CapturedStep(graph, rows, ids)

    def _step(self, size: int) -> None:
        """Launches one whole step of `size` rows."""
        slots, positions = self._rows[:size], self._rows[size : 2 * size]
        inputs = DecodeInputs(
            self._inputs.token_ids[:size],
            self._inputs.kv_slots[:size],
            self._inputs.lengths[:size],
            self._inputs.page_table[:size],
        )
        decode_inputs(slots, positions, self._state, inputs)
        ones = np.ones(size, np.int32)
        step = StepTensors(
            token_ids=inputs.token_ids,
            positions=positions,
            kv_slots=inputs.kv_slots,
            page_table=inputs.page_table,
            lengths=inputs.lengths,
            n_decode=size,
            row_starts=np.zeros(size, np.int32),
            row_counts=ones,
            row_offsets=np.arange(size, dtype=np.int32),
            sample_index=self._index[:size],
        )
        logits = self._compute_logits(step)
        if self._scratch is None:
            self._scratch = SamplingScratch.allocate(self._sizes[-1], logits.shape[1], logits.device)
        sample_rows(logits, slots, positions, self._state, self._ids[:size], advance=True, scratch=self._scratch)

    def run(
        self,
        slots: np.ndarray,
        positions: np.ndarray,
        n_steps: int,
        on_step: Callable[[int, torch.Tensor], None] = lambda index, ids: None,
    ) -> torch.Tensor:
        """Queues n_steps steps of the rows on the current stream; waits for nothing on the device.

        slots, positions [n] integers on the host: row i computes the token at positions[i] of slots[i] and samples the one
        behind it; the next step is one position on. Right after step j is queued, on_step(j, ids) gets its ids [n] int64 on
        the device: a static buffer that the next step overwrites, so what is to be kept must be copied on this stream, in
        on_step. Returns that buffer with the last step's ids. Raises ValueError when there are no rows or too many."""
        n = len(slots)
        if not 1 <= n <= self.max_rows:
            raise ValueError(f"slots: expected 1 to {self.max_rows} rows, got {n}")
        size = min(size for size in self._captured if size >= n)
        step = self._captured[size]
        self._send_rows(step.rows, slots, positions)
        ids = step.ids[:n]
        for index in range(n_steps):
            step.graph.replay()
            on_step(index, ids)
        return ids

    def _send_rows(self, target: torch.Tensor, slots: np.ndarray, positions: np.ndarray) -> None:
        n, size = len(slots), target.shape[0] // 2
        which = self._next_staging
        self._next_staging = (which + 1) % _STAGING_BUFFERS
        self._staged[which].synchronize()  # the copy of eight runs ago
        staging = self._staging[which].numpy()
        staging[:n], staging[n:size] = slots, self._state.n_slots
        staging[size : size + n], staging[size + n : 2 * size] = positions, 0
        target.copy_(self._staging[which][: 2 * size], non_blocking=True)
        self._staged[which].record()
