"""The parts that captured steps share: graph memory, the buffers of their results, and copies of host arrays to the device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.batch.uploads import copy_staged
from gpu_workers.cuda.kernels.sampling.sample import SamplingScratch, sample_rows
from gpu_workers.grammar.grammar_step import GrammarStep
from gpu_workers.graphs.mask_upload import ConstrainedRows, MaskUpload
from gpu_workers.graphs.token_counts import TokenCounts

ComputeLogits = Callable[[StepTensors], torch.Tensor]  # the model's step: tensors -> logits [S, vocabulary], any float dtype
_STAGING_BUFFERS = 8


class GraphPool:
    """Captures steps as CUDA graphs that share one memory, so one of them runs at a time, all on one stream.

    `compute_logits` is called at capture only, with static tensors. It must launch kernels on the current stream and do nothing
    else: no synchronisation, no copy from or to the host. The results of a captured step stand in `ids` and `logits` until the
    next one runs: copy them on the same stream.
    """

    def __init__(
        self,
        state: DeviceState,
        compute_logits: ComputeLogits,
        max_samples: int,
        counts: TokenCounts | None = None,
        priority: int = 0,
    ) -> None:
        """max_samples: samples of the largest step. Tensors are allocated on the state's device. counts: those of another pool,
        whose steps have other slots. priority: of the stream that captures, which its kernels keep."""
        self.state = state
        self.ids = torch.zeros(max_samples, dtype=torch.int64, device=state.device)  # the chosen tokens
        self._compute_logits = compute_logits
        self._logits: torch.Tensor | None = None
        self._scratch: SamplingScratch | None = None
        self._counts = counts
        self._masks: MaskUpload | None = None
        self._constrained: dict[int, torch.cuda.CUDAGraph] = {}  # by number of samples
        self._handle = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(state.device, priority=priority)

    @property
    def samples(self) -> bool:
        """True if captured steps sample. Only after a capture."""
        return self._logits is not None

    @property
    def logits(self) -> torch.Tensor:
        """[max_samples, vocabulary], of the model's dtype, on the device: those of the last step. Only after a capture."""
        assert self._logits is not None
        return self._logits

    @property
    def counts(self) -> TokenCounts:
        """What penalties are computed from; `prepare` it before each run. Only after a capture."""
        assert self._counts is not None
        return self._counts

    @property
    def masks(self) -> MaskUpload:
        """The way of masks to the device. Only after a capture."""
        assert self._masks is not None
        return self._masks

    def capture(self, launch: Callable[[], None], *, runs_first: bool) -> torch.cuda.CUDAGraph:
        """Captures the kernels that `launch` launches. Its writes must be harmless.

        runs_first: call it once before the capture, so that everything has been allocated that may not be allocated during a
        capture. The first step of each kind needs this. A kernel may be compiled and loaded during a capture ("relaxed")."""
        self._stream.wait_stream(torch.cuda.current_stream(self.state.device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            if runs_first:
                launch()
            graph.capture_begin(pool=self._handle, capture_error_mode="relaxed")
            try:
                launch()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.state.device).wait_stream(self._stream)
        return graph

    def finish(self, step: StepTensors, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Launches the end of a captured step: computes logits and samples the token after positions[i] of slots[i].

        slots, positions: [S] int64 on the device. The token goes to `ids` and to the token table, and positions rise by one;
        not for slots with a grammar, see `sample_constrained`."""
        logits = self._compute_logits(step)
        n, vocabulary = logits.shape
        if not n:
            return  # of an early stage of a pipeline, which samples nothing
        if self._logits is None or self._scratch is None or self._counts is None:
            sizes = (len(self.ids), vocabulary)
            self._logits = torch.zeros(sizes, dtype=logits.dtype, device=logits.device)
            self._scratch = SamplingScratch.allocate(*sizes, logits.device)
            self._counts = self._counts or TokenCounts(self.state, vocabulary)
            self._masks = MaskUpload(*sizes, self.state.n_slots, logits.device)
        kept = self._logits[:n]
        kept.copy_(logits)
        drafts = step.token_ids if step.sample_index is None else step.token_ids.index_select(0, step.sample_index)
        sample_rows(
            kept, slots, positions, self.state, self.ids[:n],
            advance=True, scratch=self._scratch, counts=self._counts.values, drafts=drafts, masks="later",
        )  # fmt: skip

    @torch.inference_mode()
    def capture_constrained(self) -> None:
        """Captures the sampling of rows that have a grammar. After the first capture of a step, whose buffers it uses."""
        for size in reversed(self.masks.sizes):
            rows = self.masks.rows(size)
            runs_first = not self._constrained
            self._constrained[size] = self.capture(lambda rows=rows: self._sample_constrained(rows), runs_first=runs_first)

    def _sample_constrained(self, rows: ConstrainedRows) -> None:
        sample_rows(
            self.logits, rows.slots, rows.positions, self.state, self.ids,
            advance=True, scratch=self._scratch, counts=self.counts.values, drafts=rows.drafts, masks=rows.masks,
        )  # fmt: skip

    def sample_constrained(self, step: GrammarStep) -> None:
        """Samples the rows of the last captured step that have a grammar, which that step has left out. Queued on the current
        stream, where it waits until the step gives its masks: only after the layers, and steps without grammars have nothing to
        do with them."""
        number, size = self.masks.expect(step.n_samples, step.n_words)
        step.promise(self.masks.host_masks, lambda samples: self.masks.give(number, samples))
        self._constrained[size].replay()


class Staging:
    """Pinned host buffers, used in turn: one is written while others are still being copied to the device."""

    def __init__(self, n: int) -> None:
        """n: int64 elements of each buffer."""
        self._buffers = [torch.empty(n, dtype=torch.int64, pin_memory=True) for _ in range(_STAGING_BUFFERS)]
        self._copied = [torch.cuda.Event() for _ in range(_STAGING_BUFFERS)]
        self._next = 0

    def send(self, target: torch.Tensor, fill: Callable[[np.ndarray], None]) -> None:
        """Calls `fill` with a host array [m] int64 and queues its copy to target [m] int64 on the device. m: at most n."""
        which = self._next
        self._next = (which + 1) % _STAGING_BUFFERS
        self._copied[which].synchronize()  # the copy of eight calls ago
        staged = self._buffers[which][: len(target)]
        fill(staged.numpy())
        copy_staged(target, staged)
        self._copied[which].record()
