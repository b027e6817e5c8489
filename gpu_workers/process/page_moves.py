"""Runs the moves between pages and host tier for a step thread: at once, or queued beside plans where the places can do that.
Waits for those of the exchange too.

A thread of its own waits for queued moves and answers them. The thread that collects results does not do it: a copy of some
milliseconds would delay every token behind it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from gpu_workers.vault.page_places import DoneMoves, PagePlaces
from messages.caches.page_moves import MovePages, PagesMoved
from messages.wire.arrays import EMPTY_I32, int32s

Answer = Callable[[PagesMoved], None]  # is called on any thread


class PageMover:
    """Used on the step thread. on_error: called on the thread that waits, with what was done and the device's error."""

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        self._on_error = on_error
        self._queued: SimpleQueue[tuple[str, Callable[[], None]] | None] = SimpleQueue()
        self._n_queued = self._n_done = 0
        self._thread: threading.Thread | None = None  # begins with what is put first

    @property
    def is_idle(self) -> bool:
        """True while all queued moves are done. Read by any thread."""
        return self._n_done == self._n_queued

    def move(self, tier: PagePlaces | None, moves: MovePages, answer: Answer) -> None:
        """Do these moves after all launched plans and before any later one. `answer` is called when they are done. Raises:
        ValueError for an unknown page or place."""
        queued = tier.queue(moves) if tier is not None else None
        if queued is None:
            answer(answer_of(moves, move_pages(tier, moves)))
            return
        self.put(f"moves {moves.number} of epoch {moves.epoch}", lambda: answer(answer_of(moves, queued.wait())))

    def put(self, doing: str, finish: Callable[[], None]) -> None:
        """Let the thread call `finish`, after all that was put before. doing: for `on_error`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moves", daemon=True)
            self._thread.start()
        self._n_queued += 1
        self._queued.put((doing, finish))

    def after_all(self, finish: Callable[[], None]) -> None:
        """Call `finish` when all that was put before is done: at once if nothing ever was."""
        if self._thread is None:
            finish()
        else:
            self.put("moves", finish)

    def close(self, timeout_s: float) -> None:
        """End the thread after the queued moves; wait at most timeout_s."""
        if self._thread is not None:
            self._queued.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        doing = "moves"
        try:
            while (item := self._queued.get()) is not None:
                doing, finish = item
                finish()
                self._n_done += 1
        except Exception as error:  # the state of the device is unknown
            self._on_error(doing, error)


def move_pages(tier: PagePlaces | None, moves: MovePages) -> DoneMoves:
    """Do these moves now. Without a tier all loads fail."""
    if tier is None:
        return DoneMoves(list(range(len(moves.loaded_pages))), 0.0)
    tier.store(moves.stored_pages, moves.stored_places, moves.stored_hashes)
    began_s = time.monotonic()
    failed = tier.load(moves.loaded_places, moves.loaded_pages, moves.loaded_hashes)
    return DoneMoves(failed, time.monotonic() - began_s, unstored=tier.take_unstored())


def answer_of(moves: MovePages, done: DoneMoves) -> PagesMoved:
    """The answer to moves that are done."""
    failed, is_early, unstored = int32s(done.failed), done.is_early, int32s(done.unstored) if done.unstored else EMPTY_I32
    return PagesMoved(
        epoch=moves.epoch, number=moves.number, failed=failed, load_s=done.load_s, is_early=is_early, unstored=unstored
    )
