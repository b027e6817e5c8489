"""The tensor-parallel ranks of one gang, and the collectives they need. A group is created once per incarnation.

A group is never repaired: when a rank dies the others hang in their collective, or it fails (`RankLost`), so the supervisor
kills the gang and starts a new one with a new rendezvous file.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import torch
import torch.distributed as dist

from gpu_workers.engine import RankLost

# torch 2.13 has this under a new name and warns of the old one, which is the only one that torch 2.11 has
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class TensorGroup(Protocol):
    """Collectives. Every rank makes the same calls in the same order; a call returns when all ranks have made it."""

    rank: int  # 0 .. size - 1
    size: int  # ranks

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """x: any shape and float dtype, on the group's device, the same on every rank. Returns the sum over the ranks, of the
        shape and dtype of x; may overwrite x and return it."""
        ...

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n] of any dtype on the group's device, the same n on every rank -> [T, size * n], the ranks' parts side by
        side in rank order."""
        ...

    def least(self, value: int) -> int:
        """The smallest of the values of the gang's ranks, those of other stages included: for example the number of pages that
        fits on every rank."""
        ...

    def close(self) -> None:
        """Leaves the group; no collective may be called afterwards."""
        ...


class SingleRank(TensorGroup):
    """A group of one rank, which exchanges nothing."""

    rank = 0
    size = 1

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x itself, of any shape and dtype: there is nothing to add."""
        return x

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x [T, n] itself."""
        return x

    def least(self, value: int) -> int:
        """Returns the value itself."""
        return value

    def close(self) -> None:
        """Nothing is open."""


def open_world(rank: int, size: int, rendezvous: Path, device: torch.device, timeout_s: float) -> None:
    """Joins the other ranks of a gang on this host through the file `rendezvous`, which only this incarnation uses.

    On CPUs each rank listens on a free TCP port of 127.0.0.1 while the group lives, because gloo has no other transport:
    any user of the machine can connect to it, and gloo does not ask who it is. NCCL is bound to the same interface.

    Raises: ValueError for a rank that is not 0 .. size - 1, and torch.distributed's errors when the others do not join
    within timeout_s; collectives have the same limit."""
    if not 0 <= rank < size:
        raise ValueError(f"rank: expected 0 .. {size - 1}, got {rank}")
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # its ports stay on this host
    store = dist.FileStore(str(rendezvous), size)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if cuda else None,
    )


class GangCalls:
    """A context for calls of torch.distributed on this device. Raises: RankLost instead of gloo's errors, which it has where
    another rank has ended. Those of a GPU may be its own, and stay as they are."""

    def __init__(self, device: torch.device) -> None:
        self._is_cpu = device.type == "cpu"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_cpu and isinstance(error, RuntimeError):
            raise RankLost(f"another rank of the gang has ended: {error}") from error


def least_of_all(value: int, device: torch.device) -> int:
    """The smallest of the values of all ranks of the gang. device: of this rank, for which it waits. Raises: RankLost."""
    holder = torch.tensor([value], dtype=torch.int64, device=device)
    with GangCalls(device):
        dist.all_reduce(holder, op=dist.ReduceOp.MIN)
    return int(holder.item())


class DistributedGroup(TensorGroup):
    """A group over torch.distributed: gloo on the CPU, NCCL on CUDA. Its collectives raise RankLost on a CPU."""

    def __init__(self, rank: int, size: int, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
        """rank, size: in `group`; None: in the gang, all of whose ranks have joined."""
        self.rank = rank
        self.size = size
        self._device, self._group, self._calls = device, group, GangCalls(device)

    @classmethod
    def join(cls, rank: int, size: int, rendezvous: Path, device: torch.device, timeout_s: float) -> Self:
        """Joins the other ranks of this host, see `open_world`. Raises: as it does."""
        open_world(rank, size, rendezvous, device, timeout_s)
        return cls(rank, size, device)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Overwrites x, of any shape and float dtype, with the sum over the ranks, and returns it. On CUDA only queued."""
        with self._calls:
            dist.all_reduce(x, group=self._group)
        return x

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n] -> a new [T, size * n], the ranks' parts side by side in rank order. On CUDA only queued."""
        gathered = torch.empty((self.size, *x.shape), dtype=x.dtype, device=x.device)
        with self._calls:
            _all_gather(gathered.flatten(0, 1), x.contiguous(), group=self._group)
        return gathered.transpose(0, 1).flatten(1)

    def least(self, value: int) -> int:
        """The smallest of the values of all ranks of the gang. Waits for the device."""
        return least_of_all(value, self._device)

    def close(self) -> None:
        """Leaves the group; no collective may be called afterwards."""
        dist.destroy_process_group()


class FixedOrderGroup(TensorGroup):
    """A group whose sums do not depend on where in a tensor an element stands.

    A ring adds the parts of an element in an order that follows from its place, and so from the rest of the batch. The sum of
    two is the same in any order; the parts of more ranks are gathered and added in rank order, in float32."""

    def __init__(self, group: TensorGroup) -> None:
        self._group = group
        self.rank, self.size = group.rank, group.size

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n] of any float dtype -> the sum over the ranks, alike. With one or two ranks it may overwrite x."""
        if self.size <= 2:
            return self._group.all_reduce(x)
        parts = self._group.all_gather_last(x).view(x.shape[0], self.size, x.shape[1])
        total = parts[:, 0].float()
        for rank in range(1, self.size):
            total += parts[:, rank]
        return total.to(x.dtype)

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n] -> [T, size * n], by the group that this one wraps."""
        return self._group.all_gather_last(x)

    def least(self, value: int) -> int:
        """The smallest of the ranks' values, by the group that this one wraps."""
        return self._group.least(value)

    def close(self) -> None:
        """Closes the group that this one wraps."""
        self._group.close()
