"""A disk tier of one rank without a file: it moves pages at once."""

from __future__ import annotations

import numpy as np

from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import MOST_FOUND, DiskMoves, DiskPagesFound, DiskPagesMoved, FindDiskPages, MoveDiskPages
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s


class MemoryDisk:
    """`contents`: by place, the hash, the host tier's checksum and the bytes. A test may change them."""

    def __init__(self) -> None:
        self.contents: dict[int, tuple[int, int, np.ndarray]] = {}
        self.names: dict[int, tuple[int, int, np.ndarray]] = {}  # by place: hash, parent's hash, tokens
        self.most_found = MOST_FOUND
        self.n_written = self.n_read = 0
        self.read_s = 0.001  # that each page takes to read, as it says

    def move(self, host: PagePlaces, moves: DiskMoves) -> DiskPagesMoved | DiskPagesFound | None:
        """Do these moves, or say what is there. Returns the answer, if any."""
        if isinstance(moves, FindDiskPages):
            return self._find(moves)
        if moves.is_cleared:
            self.forget()
            return DiskPagesMoved(epoch=moves.epoch, number=moves.number)
        return self.move_pages(host, moves)

    def forget(self) -> None:
        """Forget all contents."""
        self.contents.clear()
        self.names.clear()

    def _find(self, wanted: FindDiskPages) -> DiskPagesFound:
        places = sorted(place for place in self.names if place < wanted.before)[-self.most_found :]
        return DiskPagesFound(
            epoch=wanted.epoch,
            number=wanted.number,
            first=places[0] if len(places) == self.most_found else 0,
            places=int32s(places),
            hashes=uint64s([self.names[place][0] for place in places]),
            parents=uint64s([self.names[place][1] for place in places]),
            tokens=int32s(np.concatenate([self.names[place][2] for place in places]) if places else []),
        )

    def move_pages(self, host: PagePlaces, moves: MoveDiskPages) -> DiskPagesMoved | None:
        """The same, of pages alone."""
        writes = (moves.written_places, moves.written_disk_places, moves.written_hashes)
        tokens = moves.written_tokens.reshape(-1, PAGE_TOKENS)
        for index, (place, disk_place, content_hash) in enumerate(zip(*(column.tolist() for column in writes), strict=True)):
            page = np.empty(host.page_bytes, np.uint8)
            if (check := host.take(place, content_hash, page)) is not None:
                self.contents[disk_place] = content_hash, check, page
                self.names[disk_place] = content_hash, int(moves.written_parents[index]), tokens[index]
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
