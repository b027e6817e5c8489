"""Steps with prompts as captured CUDA graphs, so that a small step takes no longer than the device needs.

Launching the kernels of a step one by one from Python takes the host several milliseconds; replaying a graph is one call. A
graph is captured for each of `mixed_sizes`; it reads its rows, tokens and attention tiles from device memory. vLLM and SGLang
pad steps to a few sizes too; here attention is part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.step_tensors import DeviceTiles, StepTensors
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS, list_tiles
from gpu_workers.cuda.kernels.step_inputs import StepInputs, step_inputs
from gpu_workers.graphs.graph_pool import GraphPool, Staging
from gpu_workers.graphs.mixed_sizes import MixedSize, arriving_sizes, choose_size


@dataclass(frozen=True)
class CapturedMixed:
    """One size: its graph, and the array that describes its step."""

    graph: torch.cuda.CUDAGraph
    words: torch.Tensor  # [n_words] int64, device: see MixedSize.split


class MixedGraphs:
    """Steps of decode rows, chunks of prompts and drafts to be verified. Use and rules as in `DecodeGraphs`."""

    def __init__(
        self, pool: GraphPool, sizes: Sequence[MixedSize], tile_tokens: int, widened_room: int = 0, *, may_arrive: bool = False
    ) -> None:
        """sizes: at least one, from `mixed_sizes`, with the same tile_tokens. widened_room: of attention, see `list_tiles`.
        may_arrive: capture some small steps a second time, for one prompt whose pages are still being loaded."""
        self._pool, state = pool, pool.state
        self._arriving = arriving_sizes(sizes) if may_arrive else []
        self._sizes, self._tile_tokens, self._widened_room = sizes, tile_tokens, widened_room
        self._captured: dict[tuple[MixedSize, bool], CapturedMixed] = {}  # by size, and whether pages arrive
        n_words = max(size.n_words for size in sizes)
        self._words = torch.zeros(n_words, dtype=torch.int64, device=state.device)
        self._inputs = StepInputs.allocate(max(s.n_tokens for s in sizes), max(s.rows for s in sizes), state)
        self._staging = Staging(n_words)

    @property
    def n_captured(self) -> int:
        """How many steps are captured."""
        return len(self._sizes) + len(self._arriving)

    @torch.inference_mode()
    def capture(self, on_size: Callable[[], None] = lambda: None, *, runs_each: bool = True) -> None:
        """Captures all sizes. Order, writes and arguments as in `DecodeGraphs.capture`."""
        for size, arrives in [*((size, False) for size in reversed(self._sizes)), *((size, True) for size in self._arriving)]:
            words = self._words[: size.n_words]
            words.zero_()
            slots, _, sample_slots, *_ = size.split(words)
            for padding in (slots, sample_slots):
                padding.fill_(self._pool.state.n_slots)
            runs_first = runs_each or not self._captured
            graph = self._pool.capture(
                lambda size=size, words=words, arrives=arrives: self._step(size, words, arrives), runs_first=runs_first
            )
            self._captured[size, arrives] = CapturedMixed(graph, words)
            on_size()

    def _step(self, size: MixedSize, words: torch.Tensor, arrives: bool) -> None:
        """Launches the kernels of one step."""
        slots, positions, sample_slots, sample_positions, sample_index, tiles = size.split(words)
        inputs = self._inputs.first(size.n_tokens, size.rows)
        step_inputs(slots, positions, self._pool.state, inputs)
        nothing = np.zeros(0, np.int32)
        step = StepTensors(
            token_ids=inputs.token_ids,
            positions=positions,
            slot_mapping=inputs.slot_mapping,
            page_table=inputs.page_table,
            lengths=inputs.lengths[: size.rows],
            n_decode=size.rows,
            row_starts=nothing,
            row_counts=nothing,
            row_offsets=nothing,
            sample_index=sample_index,
            device_tiles=DeviceTiles(tiles.view(-1, TILE_FIELDS), self._pool.state.pages),
            arrives=arrives,
        )
        self._pool.finish(step, sample_slots, sample_positions)

    def run(self, step: StepArrays, prepare: Callable[[], None] = lambda: None, *, arrives: bool = False) -> bool:
        """Queues a step on the current stream. Its samples, in the step's order, will be the pool's first ids and logits.

        prepare: called before the step is queued, if it fits. arrives: its layers wait for those of a load. Returns False if it
        fits no size; then nothing has been done."""
        n = step.n_decode
        columns = (step.slots[n:], step.starts[n:], step.counts[n:], step.offsets[n:])
        tiles = list_tiles(*columns, self._tile_tokens, self._widened_room)
        size = choose_size(self._arriving if arrives else self._sizes, step, len(tiles))
        if size is None:
            return False
        prepare()
        captured = self._captured[size, arrives]
        self._staging.send(captured.words, lambda words: size.place(step, tiles, self._pool.state.n_slots, words))
        captured.graph.replay()
        return True
