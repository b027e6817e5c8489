"""All captured steps of a rank: pure decode steps, which may be leased, and steps with prompts or drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.graphs.decode_graphs import DecodeGraphs, graph_sizes
from gpu_workers.graphs.graph_pool import ComputeLogits, GraphPool
from gpu_workers.graphs.mixed_graphs import MixedGraphs
from gpu_workers.graphs.mixed_sizes import MixedSize

_LAUNCH_FLOP = 8e12  # about what a device computes while the host launches a step kernel by kernel


class StepGraphs:
    """The captured steps of a rank. They apply every sampling rule; `pool.counts` is prepared for those with penalties."""

    def __init__(
        self,
        state: DeviceState,
        compute_logits: ComputeLogits,
        mixed: Sequence[MixedSize] = (),
        tile_tokens: int = 1,
        decode_sizes: Sequence[int] | None = None,
        widened_room: int = 0,
        *,
        may_arrive: bool = False,
    ) -> None:
        """mixed: sizes of steps with prompts, from `mixed_sizes`, with the same tile_tokens; if empty, none is captured.
        decode_sizes: batch sizes of decode steps, `graph_sizes(n_slots)` by default. widened_room: of attention. may_arrive: as
        of `MixedGraphs`."""
        decode_sizes = decode_sizes or graph_sizes(state.n_slots)
        most = max([*decode_sizes, *(size.samples for size in mixed)])
        self.pool = GraphPool(state, compute_logits, most)
        self.decode = DecodeGraphs(self.pool, decode_sizes)
        self.mixed = MixedGraphs(self.pool, mixed, tile_tokens, widened_room, may_arrive=may_arrive) if mixed else None

    def capture(self, on_progress: Callable[[float], None] = lambda fraction: None, *, runs_each: bool = True) -> None:
        """Captures all sizes. The device's tables and pages must not move afterwards. on_progress gets the fraction done.
        runs_each: run each size once before its capture, which takes as long as the capture; steps with collectives need it."""
        total, done = len(self.decode.sizes) + (self.mixed.n_captured if self.mixed else 0), 0

        def count() -> None:
            nonlocal done
            done += 1
            on_progress(done / total)

        if self.mixed is not None:
            self.mixed.capture(count, runs_each=runs_each)
        self.decode.capture(count, runs_each=runs_each)
        if self.pool.samples:
            self.pool.capture_constrained()
        torch.cuda.synchronize(self.pool.state.device)


def launch_bound_tokens(n_parameters: int, max_step_tokens: int) -> int:
    """Tokens of the largest step that takes the host longer to launch than the device to run.

    n_parameters: parameters of a rank's layers; max_step_tokens: upper bound of the result.
    """
    return min(max_step_tokens, int(_LAUNCH_FLOP / (2 * n_parameters)))
