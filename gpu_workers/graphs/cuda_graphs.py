"""All captured steps of a rank: pure decode steps, which may be leased, and steps with prompts or drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.graphs.decode_graphs import DecodeGraphs, graph_sizes
from gpu_workers.graphs.graph_pool import ComputeLogits, GraphPool
from gpu_workers.graphs.mixed_graphs import MixedGraphs
from gpu_workers.graphs.mixed_sizes import MixedSize

_HIDDEN_FLOP = 8e12  # what a device computes in about the time that a host needs to launch a step kernel by kernel


class StepGraphs:
    """Captured steps whose rows are greedy or have a temperature only; of other rows the logits count."""

    def __init__(
        self,
        state: DeviceState,
        compute_logits: ComputeLogits,
        mixed: Sequence[MixedSize] = (),
        tile_tokens: int = 1,
        decode_sizes: Sequence[int] | None = None,
    ) -> None:
        """mixed: sizes of steps with prompts, from `mixed_sizes`, and tile_tokens as there; none: such steps are not captured.
        decode_sizes: `graph_sizes` by default."""
        decode_sizes = decode_sizes or graph_sizes(state.n_slots)
        most = max([*decode_sizes, *(size.samples for size in mixed)])
        self.pool = GraphPool(state, compute_logits, most)
        self.decode = DecodeGraphs(self.pool, decode_sizes)
        self.mixed = MixedGraphs(self.pool, mixed, tile_tokens) if mixed else None

    def capture(self, on_progress: Callable[[float], None] = lambda fraction: None) -> None:
        """Captures everything; the device's tables and pages must not move afterwards. on_progress gets the fraction done."""
        total, done = len(self.decode.sizes) + len(self.mixed.sizes if self.mixed else ()), 0

        def count() -> None:
            nonlocal done
            done += 1
            on_progress(done / total)

        if self.mixed is not None:
            self.mixed.capture(count)
        self.decode.capture(count)
        torch.cuda.synchronize(self.pool.state.device)


def launch_bound_tokens(n_parameters: int, max_step_tokens: int) -> int:
    """Tokens up to which the host needs longer to launch a step than the device to run it. n_parameters: of a rank's layers."""
    return min(max_step_tokens, int(_HIDDEN_FLOP / (2 * n_parameters)))
