"""Ranks on GPUs that can access each other's memory: they sum small tensors in one kernel, in half the time of NCCL.

Each rank writes its part to memory that its peers have mapped (torch's symmetric memory). One shot: after a barrier inside the
kernel every rank reads all parts and adds them. Two shots: every rank adds its share of the elements and writes the sums to all
others, so that less is read. For large sums NCCL's ring is faster. Where the memory cannot be shared, the gang agrees to use
NCCL for everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog
import torch
import torch.distributed as dist

from gpu_workers.layers.tensor_group import DistributedGroup


@dataclass(frozen=True)
class SumLimits:
    """The most bytes of a sum that each of the two kernels computes; NCCL computes larger sums."""

    one_shot_bytes: int
    two_shot_bytes: int


# By number of ranks; us of one sum on two and four H200: docs/performance_gpus.md
_LIMITS = {2: SumLimits(768 << 10, 8 << 20), 4: SumLimits(512 << 10, 8 << 20)}
_LIMITS_OF_MORE = SumLimits(512 << 10, 512 << 10)  # two shots are not measured on other numbers
_ALIGNMENT_BYTES = 16
_DTYPES = (torch.bfloat16, torch.float32)


class SymmetricGroup(DistributedGroup):
    """NCCL, with symmetric memory for small sums. The sum is the same on all ranks up to the order of addition."""

    def __init__(
        self,
        rank: int,
        size: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        limits: SumLimits | None = None,
    ) -> None:
        """limits: None: those that were measured for so many ranks. Others: as for `DistributedGroup`."""
        super().__init__(rank, size, device, group)
        self._name = ""  # of the group that shares the buffers
        self._buffers: dict[torch.dtype, torch.Tensor] = {}
        self._limits = limits or _LIMITS.get(size, _LIMITS_OF_MORE)
        self._limit_bytes = 0

    def share_memory(self, dtype: torch.dtype) -> None:
        """Map a buffer for sums of `dtype` on all ranks; all call it, once, before the first sum. Dtypes that
        torch's kernels do not support are left to NCCL."""
        if dtype not in _DTYPES:
            return
        limit_bytes = self._limits.two_shot_bytes
        buffer = self._allocated(limit_bytes, dtype)
        if (
            not self.least(int(buffer is not None)) or buffer is None
        ):  # otherwise ranks with a buffer would wait for ranks without
            return
        try:
            from torch.distributed import _symmetric_memory as symmetric_memory

            group = self._group or dist.group.WORLD
            assert group is not None, "the group is joined"
            symmetric_memory.rendezvous(buffer, group.group_name)
            self._name, self._buffers[dtype] = group.group_name, buffer
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
        """x: any shape and float dtype, the same on every rank -> the sum over the ranks, of the shape and dtype of x. A small
        contiguous x is added in shared memory, any other by NCCL, which may overwrite it."""
        n_bytes = x.numel() * x.element_size()
        buffer = self._buffers.get(x.dtype)
        if buffer is None or not 0 < n_bytes <= self._limit_bytes or not x.is_contiguous():
            return super().all_reduce(x)
        part = buffer[: x.numel()]
        if n_bytes <= self._limits.one_shot_bytes and n_bytes % _ALIGNMENT_BYTES == 0:
            return torch.ops.symm_mem.one_shot_all_reduce_copy(part, x.view(-1), "sum", self._name).view_as(x)
        if n_bytes % (_ALIGNMENT_BYTES * self.size):
            return super().all_reduce(x)
        part.copy_(x.view(-1))  # both kernels end with a barrier, so no rank still reads the previous sum
        return torch.ops.symm_mem.two_shot_all_reduce_(part, "sum", self._name).clone().view_as(x)


def _warn(error: Exception) -> None:
    structlog.get_logger().warning("no symmetric memory: sums go through NCCL", reason=str(error)[:300])
