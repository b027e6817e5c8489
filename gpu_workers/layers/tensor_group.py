"""The ranks of one gang that hold one model together, and the two collectives they need. Created once per incarnation.

A group is never repaired in place: when a rank dies the survivors hang in their collective, so the supervisor kills the gang
and a new one meets under a new rendezvous file.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Protocol, Self

import torch
import torch.distributed as dist


class TensorGroup(Protocol):
    """Seam for collectives: torch.distributed here, symmetric memory on CUDA. All ranks call in the same order."""

    @property
    def rank(self) -> int:
        """0 .. size - 1."""
        ...

    @property
    def size(self) -> int:
        """Ranks."""
        ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks, same shape on each; x may be overwritten and returned."""
        ...

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n], the same n on each rank -> [T, size * n], in rank order."""
        ...

    def least(self, value: int) -> int:
        """The smallest of the ranks' values (how many pages a gang can promise)."""
        ...

    def close(self) -> None:
        """Leaves the group; no collective afterwards."""
        ...


class SingleRank:
    """The group of one: nothing to exchange."""

    rank = 0
    size = 1

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See TensorGroup."""
        return x

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """See TensorGroup."""
        return x

    def least(self, value: int) -> int:
        """See TensorGroup."""
        return value

    def close(self) -> None:
        """See TensorGroup."""


class DistributedGroup:
    """torch.distributed: gloo on the CPU, nccl on CUDA."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank = rank
        self.size = size
        self._device = device

    @classmethod
    def join(cls, rank: int, size: int, rendezvous: Path, device: torch.device, timeout_s: float) -> Self:
        """Meets the other ranks of this host through a file that this incarnation alone uses; no port is opened for it.

        Raises torch.distributed's errors when they do not come within timeout_s; collectives keep the same limit."""
        if not 0 <= rank < size:
            raise ValueError(f"rank: expected 0 .. {size - 1}, got {rank}")
        cuda = device.type == "cuda"
        if cuda:
            torch.cuda.set_device(device)
        else:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # gloo's pairs talk over sockets: keep them on this host
        store = dist.FileStore(str(rendezvous), size)  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
            device_id=device if cuda else None,
        )
        return cls(rank, size, device)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See TensorGroup."""
        dist.all_reduce(x)
        return x

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """See TensorGroup."""
        gathered = torch.empty((self.size, *x.shape), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(gathered.flatten(0, 1), x.contiguous())
        return gathered.transpose(0, 1).flatten(1)

    def least(self, value: int) -> int:
        """See TensorGroup."""
        holder = torch.tensor([value], dtype=torch.int64, device=self._device)
        dist.all_reduce(holder, op=dist.ReduceOp.MIN)
        return int(holder.item())

    def close(self) -> None:
        """See TensorGroup."""
        dist.destroy_process_group()
