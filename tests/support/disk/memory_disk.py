"""A disk tier of one rank without a file: it moves pages at once."""

from __future__ import annotations

import numpy as np

from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import DiskPagesMoved, MoveDiskPages
from messages.wire.arrays import int32s


class MemoryDisk:
    """`contents`: by place, the hash, the host tier's checksum and the bytes. A test may change them."""

    def __init__(self) -> None:
        self.contents: dict[int, tuple[int, int, np.ndarray]] = {}
        self.n_written = self.n_read = 0
        self.read_s = 0.001  # that each page takes to read, as it says

    def move(self, host: PagePlaces, moves: MoveDiskPages) -> DiskPagesMoved | None:
        """Do these moves. Returns the answer if there are pages to read."""
        writes = (moves.written_places, moves.written_disk_places, moves.written_hashes)
        for place, disk_place, content_hash in zip(*(column.tolist() for column in writes), strict=True):
            page = np.empty(host.page_bytes, np.uint8)
            if (check := host.take(place, content_hash, page)) is not None:
                self.contents[disk_place] = content_hash, check, page
                self.n_written += 1
        reads, failed = (moves.read_disk_places, moves.read_places, moves.read_hashes), []
        for index, (disk_place, place, content_hash) in enumerate(zip(*(column.tolist() for column in reads), strict=True)):
            found, check, page = self.contents.get(disk_place, (0, 0, np.empty(0)))
            if found == content_hash:
                host.put(place, content_hash, check, page)
                self.n_read += 1
            else:
                failed.append(index)
        n_reads = len(moves.read_places)
        moved = DiskPagesMoved(epoch=moves.epoch, number=moves.number, failed=int32s(failed), read_s=n_reads * self.read_s)
        return moved if n_reads else None
