"""Ranks on GPUs that see each other's memory: sums of small tensors in one kernel, which NCCL needs twice as long for.

Each rank leaves its part in memory that its peers have mapped; after a barrier inside the kernel every rank reads all parts
and adds them (torch's symmetric memory, one-shot). Beyond a few hundred kilobytes reading everything from everyone costs more
than NCCL's ring, and NCCL takes over. Where the memory cannot be shared, the gang agrees to use NCCL for everything.
"""

from __future__ import annotations

import structlog
import torch
import torch.distributed as dist

from gpu_workers.layers.tensor_group import DistributedGroup

_ONE_SHOT_BYTES = {2: 1 << 20}  # by number of ranks: up to here one shot is faster, as measured on H100 and H200
_ONE_SHOT_BYTES_OF_MORE = 1 << 19
_ALIGNMENT_BYTES = 16
_DTYPES = (torch.bfloat16, torch.float32)


class SymmetricGroup(DistributedGroup):
    """nccl, and symmetric memory for small sums. The sum is the same on all ranks up to the order of addition."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        super().__init__(rank, size, device)
        self._name = ""  # of the group that shares the buffers
        self._buffers: dict[torch.dtype, torch.Tensor] = {}
        self._limit_bytes = 0

    def share_memory(self, dtype: torch.dtype) -> None:
        """Map a buffer for sums of `dtype` on all ranks; all call it, once, before the first sum. Other dtypes than torch's
        kernel knows stay with NCCL."""
        if dtype not in _DTYPES:
            return
        limit_bytes = _ONE_SHOT_BYTES.get(self.size, _ONE_SHOT_BYTES_OF_MORE)
        buffer = self._allocated(limit_bytes, dtype)
        if not self.least(int(buffer is not None)) or buffer is None:  # or those who have one would wait for those who have not
            return
        try:
            from torch.distributed import _symmetric_memory as symmetric_memory

            world = dist.group.WORLD
            assert world is not None, "the group is joined"
            symmetric_memory.rendezvous(buffer, world.group_name)
            self._name, self._buffers[dtype] = world.group_name, buffer
        except (RuntimeError, AttributeError) as error:
            _warn(error)
            limit_bytes = 0
        self._limit_bytes = self.least(limit_bytes)

    def _allocated(self, n_bytes: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Memory that can be shared, or None where there is none."""
        try:
            from torch.distributed import _symmetric_memory as symmetric_memory

            return symmetric_memory.empty(n_bytes // dtype.itemsize, dtype=dtype, device=self._device)
        except (RuntimeError, ImportError, AttributeError) as error:
            _warn(error)
            return None

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See TensorGroup."""
        n_bytes = x.numel() * x.element_size()
        buffer = self._buffers.get(x.dtype)
        if buffer is None or not 0 < n_bytes <= self._limit_bytes or n_bytes % _ALIGNMENT_BYTES or not x.is_contiguous():
            return super().all_reduce(x)
        part = buffer[: x.numel()]
        return torch.ops.symm_mem.one_shot_all_reduce_copy(part, x.view(-1), "sum", self._name).view_as(x)


def _warn(error: Exception) -> None:
    structlog.get_logger().warning("no symmetric memory: sums go through NCCL", reason=str(error)[:300])
