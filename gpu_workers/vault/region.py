"""Memory of a rank that can be exchanged for shared memory: what the vault's side needs to know of a device."""

from __future__ import annotations

from typing import Protocol


class Region(Protocol):
    """Memory at a fixed address. It is private to this process until `share`."""

    n_bytes: int

    def make(self) -> int:
        """New zeroed memory that `share` can take. Returns its descriptor, which the caller closes.

        Raises: OSError when the device has no memory for it."""
        ...

    def use_large_pages(self) -> None:
        """Use large pages where they make reading faster and the machine has them. Call it when shared memory was mapped for
        writing. All of it is then in use, touched or not. Other threads may write to it meanwhile."""

    def share(self, descriptor: int, is_read_only: bool = False) -> None:
        """From now on the region is the memory behind this descriptor, with its content, at the same address. Nothing may use
        the region meanwhile. The descriptor may be closed.

        is_read_only: a write through this region faults and changes nothing.

        Raises: OSError or ValueError when that is not memory of this size."""
        ...

    def give_back(self, first_byte: int, n_bytes: int) -> None:
        """Give the memory of a part of the region back to the system, at the same addresses: it reads as zeros then, and takes
        memory again where it is written. Nothing may use that part meanwhile. A device that cannot keeps memory and content."""

    def finish(self, descriptor: int) -> None:
        """The memory behind this descriptor is as it shall be: from now on it is mapped to read only, and where the system can
        do that, nobody can write to it any more who has its descriptor. Raises: as `share`."""
        self.share(descriptor, is_read_only=True)
