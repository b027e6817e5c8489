"""Decode steps as captured CUDA graphs: everything from the token table to the sampled ids is one launch.

A graph is captured for each of a few batch sizes, on buffers that never move. A batch uses the next larger size; the rest of
the rows is padding of the dummy slot. The graph reads tokens and pages from DeviceState by slot and position, writes the
sampled token to `state.tokens[slot, position + 1]` and advances its positions, so the next step is another replay.
Replaying whole decode steps as graphs is common practice (vLLM, SGLang).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cuda.kernels.step_inputs import StepInputs, step_inputs
from gpu_workers.graphs.graph_pool import GraphPool, Staging


def graph_sizes(n_slots: int) -> tuple[int, ...]:
    """Batch sizes worth a graph: 1, 2, 4, 8, then every 8 up to 64, every 16 up to 256, every 64 up to 512, every 128 above;
    at most n_slots."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, 512, 64), *range(512, n_slots + 128, 128)]
    return tuple(sorted({min(size, n_slots) for size in sizes}))


@dataclass(frozen=True)
class CapturedDecode:
    """One batch size: its graph, and the rows that the graph reads."""

    graph: torch.cuda.CUDAGraph
    rows: torch.Tensor  # [2 n] int64, device: slots, then positions


class DecodeGraphs:
    """Steps in which every row computes one token and samples the next.

    Use: construct; call `capture()` when weights and pages are in place (they must not move afterwards); then call `run` from
    the thread and stream that also run all other steps. Before `run`, the device tables must hold each row's token at its
    position and pages for all positions that the steps write (it is enough if these writes are queued on the same stream).
    """

    def __init__(self, pool: GraphPool, sizes: Sequence[int] | None = None) -> None:
        """sizes: batch sizes to capture, `graph_sizes(n_slots)` by default."""
        self._pool, state = pool, pool.state
        self._sizes = tuple(sorted(sizes or graph_sizes(state.n_slots)))
        self._captured: dict[int, CapturedDecode] = {}
        largest, device = self._sizes[-1], state.device
        self._rows = torch.zeros(2 * largest, dtype=torch.int64, device=device)
        self._inputs = StepInputs.allocate(largest, largest, state)
        self._staging = Staging(2 * largest)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes in rising order."""
        return self._sizes

    @torch.inference_mode()
    def capture(self, on_size: Callable[[], None] = lambda: None, *, runs_each: bool = True) -> None:
        """Captures all sizes, the largest first so that the smaller ones reuse its memory. Writes to the dummy slot and the
        dummy page only. runs_each: run each size before its capture, and not the largest alone."""
        for size in reversed(self._sizes):
            rows = self._rows[: 2 * size]
            rows[:size].fill_(self._pool.state.n_slots)
            rows[size:].zero_()
            runs_first = runs_each or not self._captured
            graph = self._pool.capture(lambda size=size: self._step(size), runs_first=runs_first)
            self._captured[size] = CapturedDecode(graph, rows)
            on_size()

    def _step(self, size: int) -> None:
        """Launches the kernels of one step of `size` rows."""
        slots, positions = self._rows[:size], self._rows[size : 2 * size]
        inputs = self._inputs.first(size, size)
        step_inputs(slots, positions, self._pool.state, inputs)
        step = StepTensors(
            token_ids=inputs.token_ids,
            positions=positions,
            slot_mapping=inputs.slot_mapping,
            page_table=inputs.page_table,
            lengths=inputs.lengths,
            n_decode=size,
            row_starts=np.zeros(size, np.int32),
            row_counts=np.ones(size, np.int32),
            row_offsets=np.arange(size, dtype=np.int32),
            sample_index=None,
        )
        self._pool.finish(step, slots, positions)

    def run(self, slots: np.ndarray, positions: np.ndarray, n_steps: int, on_step: Callable[[int], None]) -> None:
        """Queues n_steps steps of the rows on the current stream; waits for nothing on the device.

        slots, positions: [n] integers on the host. Row i computes the token at positions[i] of slots[i] and samples the next
        one; each further step is one position later. on_step(j) is called right after step j is queued; it may copy from the
        pool's first n ids and logits. Raises: ValueError if there are no rows or too many."""
        n = len(slots)
        if not 1 <= n <= self._sizes[-1]:
            raise ValueError(f"slots: expected 1 to {self._sizes[-1]} rows, got {n}")
        size = min(size for size in self._sizes if size >= n)
        step, dummy_slot = self._captured[size], self._pool.state.n_slots

        def fill(rows: np.ndarray) -> None:
            rows[:n], rows[n:size] = slots, dummy_slot
            rows[size : size + n], rows[size + n :] = positions, 0

        self._staging.send(step.rows, fill)
        for index in range(n_steps):
            step.graph.replay()
            on_step(index)
