"""What captured steps share: the memory that they run in, the buffers that they end in, and how host arrays reach them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cuda.kernels.sampling import SamplingScratch, sample_rows

ComputeLogits = Callable[[StepTensors], torch.Tensor]  # the model's step: tensors -> logits [S, vocabulary], any float dtype
_STAGING_BUFFERS = 8


class GraphPool:
    """Graphs captured here use the same memory, so one runs at a time: all of them on one stream.

    `compute_logits` is called at capture only, with static tensors; it must launch kernels on the current stream and do
    nothing else: no synchronisation, no copy from or to the host. What a captured step gives stands in `ids` and `logits`
    until the next one runs, so what is to be kept must be copied on the same stream.
    """

    def __init__(self, state: DeviceState, compute_logits: ComputeLogits, max_samples: int) -> None:
        """max_samples: of the largest step."""
        self.state = state
        self.ids = torch.zeros(max_samples, dtype=torch.int64, device=state.device)  # the chosen tokens
        self._compute_logits = compute_logits
        self._logits: torch.Tensor | None = None
        self._scratch: SamplingScratch | None = None
        self._handle = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(state.device)

    @property
    def logits(self) -> torch.Tensor:
        """[max_samples, vocabulary], the model's dtype: of the step that ran last. Only after a capture."""
        assert self._logits is not None
        return self._logits

    def capture(self, launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """`launch` as a graph. It is run once before, which compiles kernels and lets libraries allocate what a capture may
        not; what it writes then must be harmless."""
        self._stream.wait_stream(torch.cuda.current_stream(self.state.device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            launch()
            graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.state.device).wait_stream(self._stream)
        return graph

    def finish(self, step: StepTensors, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """The end of every captured step: logits, and the token behind positions[i] of slots[i], [S] int64, greedy or by
        temperature alone. It goes to `ids` and to the token table; positions move on by one."""
        logits = self._compute_logits(step)
        n, vocabulary = logits.shape
        if self._logits is None or self._scratch is None:
            sizes = (len(self.ids), vocabulary)
            self._logits = torch.zeros(sizes, dtype=logits.dtype, device=logits.device)
            self._scratch = SamplingScratch.allocate(*sizes, logits.device)
        kept = self._logits[:n]
        kept.copy_(logits)
        sample_rows(kept, slots, positions, self.state, self.ids[:n], advance=True, scratch=self._scratch)


class Staging:
    """Pinned host memory in turns: one buffer is written while others are still being copied."""

    def __init__(self, n: int) -> None:
        """Room for n int64 in each buffer."""
        self._buffers = [torch.empty(n, dtype=torch.int64, pin_memory=True) for _ in range(_STAGING_BUFFERS)]
        self._copied = [torch.cuda.Event() for _ in range(_STAGING_BUFFERS)]
        self._next = 0

    def send(self, target: torch.Tensor, fill: Callable[[np.ndarray], None]) -> None:
        """Queues a copy of what `fill` writes, into all of target [m] int64 on the device."""
        which = self._next
        self._next = (which + 1) % _STAGING_BUFFERS
        self._copied[which].synchronize()  # the copy of eight calls ago
        staged = self._buffers[which][: len(target)]
        fill(staged.numpy())
        target.copy_(staged, non_blocking=True)
        self._copied[which].record()
