"""The memory of a GPU that is exchanged at its address, over a driver that only keeps books."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

from gpu_workers.vault import cuda_region
from gpu_workers.vault.cuda_driver import CudaError, Driver
from gpu_workers.vault.cuda_region import CudaRegion

MIB = 1 << 20


@dataclass
class Books(Driver):
    """A driver that knows who holds which memory. Memory is a number; its descriptor is that of an empty file."""

    granularity_bytes: int = 2 * MIB
    sizes: dict[int, int] = field(default_factory=dict)  # of every memory that was made
    handles: dict[int, int] = field(default_factory=dict)  # open handles -> memory
    mapped: dict[int, tuple[int, int]] = field(default_factory=dict)  # address -> (size, memory)
    reserved: dict[int, int] = field(default_factory=dict)
    read_only: set[int] = field(default_factory=set)  # addresses
    zeroed: set[int] = field(default_factory=set)
    files: dict[int, int] = field(default_factory=dict)  # inode -> memory
    n_refusals: int = 0
    next: int = 1

    def create(self, n_bytes: int) -> int:
        if self.n_refusals:
            self.n_refusals -= 1
            raise CudaError("out of memory")
        assert n_bytes % self.granularity_bytes == 0
        memory = self._number()
        self.sizes[memory] = n_bytes
        return self._open(memory)

    def release(self, handle: int) -> None:
        del self.handles[handle]

    def export(self, handle: int) -> int:
        descriptor = os.memfd_create("memory")
        self.files[os.fstat(descriptor).st_ino] = self.handles[handle]
        return descriptor

    def adopt(self, descriptor: int) -> int:
        return self._open(self.files[os.fstat(descriptor).st_ino])

    def reserve(self, n_bytes: int) -> int:
        address = self._number() << 40
        self.reserved[address] = n_bytes
        return address

    def free(self, address: int, n_bytes: int) -> None:
        assert self.reserved.pop(address) == n_bytes

    def map(self, address: int, n_bytes: int, handle: int, is_read_only: bool = False) -> None:
        memory = self.handles[handle]
        self.read_only.discard(address)
        if is_read_only:
            self.read_only.add(address)
        if self.sizes[memory] != n_bytes:
            raise CudaError(f"expected {self.sizes[memory]}, got {n_bytes}")
        assert all(address + n_bytes <= at or at + size <= address for at, (size, _) in self.mapped.items())
        self.mapped[address] = (n_bytes, memory)

    def unmap(self, address: int, n_bytes: int) -> None:
        assert self.mapped.pop(address)[0] == n_bytes

    def zero(self, address: int, n_bytes: int) -> None:
        size, memory = self.mapped[address]
        assert size == n_bytes
        self.zeroed.add(memory)

    def wait_idle(self) -> None:
        pass

    def content(self) -> set[int]:
        return {memory for _, memory in self.mapped.values()}

    def covered(self) -> list[int]:
        """Every address behind a mapped byte, in steps of the granularity."""
        return sorted(
            at for start, (size, _) in self.mapped.items() for at in range(start, start + size, self.granularity_bytes)
        )

    def _open(self, memory: int) -> int:
        handle = self._number()
        self.handles[handle] = memory
        return handle

    def _number(self) -> int:
        self.next += 1
        return self.next


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_region, "_PIECE_BYTES", 8 * MIB)


@pytest.mark.parametrize(("n_bytes", "whole", "n_made"), [(1, 2, 1), (8 * MIB, 8, 1), (32 * MIB, 32, 1), (43 * MIB, 44, 2)])
def test_a_region_begins_as_one_small_piece_everywhere(n_bytes: int, whole: int, n_made: int) -> None:
    books = Books()
    region = CudaRegion(n_bytes, books)
    assert region.n_bytes == n_bytes
    assert books.covered() == [region.address + i * 2 * MIB for i in range(whole // 2)]
    assert len(books.sizes) == n_made
    assert books.zeroed == set(books.sizes)
    assert not books.handles, "mappings alone hold it"


def test_shared_memory_takes_its_place_and_outlives_it() -> None:
    books = Books()
    region, other = CudaRegion(43 * MIB, books), CudaRegion(43 * MIB, books)
    before = set(books.sizes)
    descriptor = region.make()
    (new,) = set(books.sizes) - before
    assert new in books.zeroed
    assert new not in books.content()
    for one in (region, other):
        address = one.address
        one.share(descriptor)
        assert one.address == address
        assert books.mapped[address] == (44 * MIB, new)
    os.close(descriptor)
    assert books.content() == {new}
    assert not books.handles
    assert len(books.reserved) == 2


def test_shared_memory_can_be_written_first_and_only_read_then() -> None:
    books = Books()
    region, other = CudaRegion(4 * MIB, books), CudaRegion(4 * MIB, books)
    descriptor = region.make()
    region.share(descriptor)
    assert not books.read_only
    for one in (region, other):
        one.share(descriptor, is_read_only=True)
        assert one.address in books.read_only
    os.close(descriptor)
    assert len(books.content()) == 1


def test_memory_of_another_size_is_refused() -> None:
    books = Books()
    descriptor = CudaRegion(4 * MIB, books).make()
    with pytest.raises(CudaError):
        CudaRegion(6 * MIB, books).share(descriptor)
    os.close(descriptor)


def test_a_full_device_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books()
    region = CudaRegion(4 * MIB, books)
    monkeypatch.setattr(cuda_region, "_RETRY_S", 0.0)
    books.n_refusals = 3
    os.close(region.make())
    monkeypatch.setattr(cuda_region, "_FREE_WAIT_S", 0.0)
    books.n_refusals = 3
    with pytest.raises(CudaError):
        region.make()
