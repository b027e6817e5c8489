"""Ranks agree whether they share memory: nobody waits for one that cannot. Without a GPU: torch's part is played."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.distributed import _symmetric_memory as symmetric_memory

from gpu_workers.cuda.symmetric_group import SymmetricGroup
from gpu_workers.layers.tensor_group import DistributedGroup

CPU = torch.device("cpu")


class Played(SymmetricGroup):
    """One rank of two. `other` says what the other rank says to each question, in order."""

    def __init__(self, *other: int) -> None:
        super().__init__(0, 2, CPU)
        self.other, self.said = list(other), []

    def least(self, value: int) -> int:
        self.said.append(int(value))
        return min(int(value), self.other.pop(0))


@pytest.fixture
def rendezvous(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whom the ranks met."""
    met: list[str] = []
    world = SimpleNamespace(WORLD=SimpleNamespace(group_name="0"))
    monkeypatch.setattr("gpu_workers.cuda.symmetric_group.dist", SimpleNamespace(group=world))
    monkeypatch.setattr(symmetric_memory, "empty", lambda n, dtype, device: torch.empty(n, dtype=dtype, device=device))
    monkeypatch.setattr(symmetric_memory, "rendezvous", lambda buffer, name: met.append(name))
    return met


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("no memory to share")


def test_sums_that_the_kernel_does_not_know_stay_with_nccl() -> None:
    group = Played()
    group.share_memory(torch.float16)  # asks nobody: the other ranks know as well
    assert (group._limit_bytes, group.said) == (0, [])


def test_ranks_that_can_share_agree_on_how_much(rendezvous: list[str]) -> None:
    group = Played(1, 1 << 19)
    group.share_memory(torch.float32)
    assert (rendezvous, group.said, group._limit_bytes) == (["0"], [1, 8 << 20], 1 << 19)


def test_a_rank_without_memory_to_share_says_so_before_anybody_waits_for_it(
    rendezvous: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symmetric_memory, "empty", refuse)
    group = Played(1)
    group.share_memory(torch.float32)
    assert (rendezvous, group.said, group._limit_bytes) == ([], [0], 0)


def test_nobody_waits_for_another_rank_that_has_none(rendezvous: list[str]) -> None:
    group = Played(0)
    group.share_memory(torch.float32)
    assert (rendezvous, group.said, group._limit_bytes) == ([], [1], 0)


def test_memory_that_cannot_be_mapped_is_not_used_by_anybody(rendezvous: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric_memory, "rendezvous", refuse)
    group = Played(1, 1 << 20)
    group.share_memory(torch.float32)
    assert (group.said, group._limit_bytes) == ([1, 0], 0)


class SumKernels:
    """Torch's kernels of one rank alone: the sum is the part. Notes which of them was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def one_shot_all_reduce_copy(self, part: torch.Tensor, x: torch.Tensor, operation: str, name: str) -> torch.Tensor:
        self.called.append("one shot")
        return part.copy_(x).clone()

    def two_shot_all_reduce_(self, part: torch.Tensor, operation: str, name: str) -> torch.Tensor:
        self.called.append("two shots")
        return part


@pytest.mark.parametrize(
    ("n_bytes", "way"),
    [(16, "one shot"), (768 << 10, "one shot"), ((768 << 10) + 32, "two shots"), (8 << 20, "two shots"),
     (8, "nccl"), ((768 << 10) + 16, "nccl"), ((8 << 20) + 32, "nccl")],
)  # fmt: skip
def test_the_size_of_a_sum_chooses_its_way(
    rendezvous: list[str], monkeypatch: pytest.MonkeyPatch, n_bytes: int, way: str
) -> None:
    group, kernels = Played(1, 8 << 20), SumKernels()
    group.share_memory(torch.float32)
    monkeypatch.setattr(torch.ops, "symm_mem", kernels, raising=False)

    def nccl(self: DistributedGroup, x: torch.Tensor) -> torch.Tensor:
        kernels.called.append("nccl")
        return x.clone()

    monkeypatch.setattr(DistributedGroup, "all_reduce", nccl)
    x = torch.arange(n_bytes // 4, dtype=torch.float32).view(2, -1)
    total = group.all_reduce(x)
    assert kernels.called == [way]
    assert total.equal(x)
    group.all_reduce(torch.zeros_like(x))
    assert total.equal(x), "a sum stays what it was when the buffer is used again"
