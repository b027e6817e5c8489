"""A device with two streams, in one thread: whoever drives it says how far it has come. Plans run on one stream, copies of
pages on the other, a half page at a time, so that a copy that runs too early or too late is seen. Each half is a layer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpu_workers.layers.page_sums import page_sums
from gpu_workers.pages.copy_stream import CopiedPages, Copies, CopyStream, PlaceCompressions, PlaceCopies
from gpu_workers.vault.place_format import PlaceFormat


@dataclass(eq=False)
class Mark:
    """A point in a stream, which an operation has reached."""

    is_reached: bool = False

    def reach(self) -> None:
        self.is_reached = True


@dataclass(eq=False)
class Stream:
    """Operations in order. Each runs once what it waits for is reached."""

    queued: deque[tuple[Mark | None, Callable[[], None]]] = field(default_factory=deque)

    def add(self, run: Callable[[], None], after: Mark | None = None) -> None:
        self.queued.append((after, run))

    def mark(self) -> Mark:
        mark = Mark()
        self.add(mark.reach)
        return mark

    def wait(self, mark: Mark) -> None:
        self.add(lambda: None, mark)

    @property
    def can_run(self) -> bool:
        return bool(self.queued) and (self.queued[0][0] is None or self.queued[0][0].is_reached)


class TwinDevice(CopyStream):
    """`pages`: [n_pages, bytes of a page] uint8. rng: chooses which stream goes on; form: of compressed places;
    by_layers: loads of pages as they are come one half of all pages after the other, so that a plan may begin with the first.
    """

    def __init__(
        self, pages: np.ndarray, rng: random.Random, form: PlaceFormat | None = None, *, by_layers: bool = False
    ) -> None:
        self.pages, self._rng, self._form, self._by_layers = pages, rng, form, by_layers
        self.plans, self.copies = Stream(), Stream()
        self.gates = [Mark(is_reached=True), Mark(is_reached=True)]  # of the newest load

    def run(self, n: int) -> None:
        """At most n operations."""
        for _ in range(n):
            streams = [stream for stream in (self.plans, self.copies) if stream.can_run]
            if not streams:
                return
            self._rng.choice(streams).queued.popleft()[1]()

    def queue(self, stored: PlaceCopies, loaded: PlaceCopies) -> Copies:
        done = TwinCopies(self)
        self.copies.wait(self.plans.mark())
        rows = self._rows_of(stored)
        if stored.is_compressed:
            self._convert(stored, lambda form, index, page: form.compress(self.pages[page], rows[index]))
        self.copies.add(lambda: done.take_sums(rows, is_stored=True))
        for place, row in self._done(stored, rows):
            self._copy(stored.memory[place], row)
        staged = self._rows_of(loaded)
        loads = [(row, loaded.memory[place]) for place, row in self._done(loaded, staged)]
        if self._by_layers and len(loaded.pages) and not loaded.is_compressed:
            self._load_layers(loads)
            done.comes_by_layers = True
        else:
            for target, source in loads:
                self._copy(target, source)
        self.copies.add(lambda: done.take_sums(staged, is_stored=False))
        if loaded.is_compressed:
            self._convert(loaded, lambda form, index, page: form.expand(staged[index], self.pages[page]))
        self.copies.add(done.mark.reach)
        return done

    def compress(self, places: PlaceCompressions) -> Copies:
        done = TwinCopies(self)
        self.copies.wait(self.plans.mark())
        froms, tos = places.from_frames.tolist(), places.to_units.tolist()
        wide = list(np.empty((len(froms), places.frames.shape[1]), np.uint8))
        small = list(np.empty((len(tos), places.units.shape[1]), np.uint8))
        for row, frame in zip(wide, froms, strict=True):
            self._copy(row, places.frames[frame])
        self.copies.add(lambda: done.take_sums(wide, is_stored=False))
        form = self._form
        assert form is not None, "the device compresses nothing"
        for page, place in zip(wide, small, strict=True):
            self.copies.add(lambda page=page, place=place: form.compress(page, place))
        self.copies.add(lambda: done.take_sums(small, is_stored=True))
        for row, unit in zip(small, tos, strict=True):
            self._copy(places.units[unit], row)
        self.copies.add(done.mark.reach)
        return done

    def hold_plans(self, copies: Copies) -> None:
        assert isinstance(copies, TwinCopies)
        self.plans.wait(copies.mark)

    def wait(self, layer: int) -> None:
        """As of `LayerGates`."""
        self.plans.wait(self.gates[layer])

    def _done(self, copies: PlaceCopies, rows: list[np.ndarray]) -> list[tuple[int, np.ndarray]]:
        """Places with their rows, of the copies that the device does: all of them."""
        return list(zip(copies.places.tolist(), rows, strict=True))

    def _load_layers(self, loads: list[tuple[np.ndarray, np.ndarray]]) -> None:
        for half in halves(self.pages.shape[1]):
            for target, source in loads:
                self.copies.add(lambda target=target[half], source=source[half]: np.copyto(target, source))
            self.gates = [self.gates[1], self.copies.mark()]

    def _rows_of(self, copies: PlaceCopies) -> list[np.ndarray]:
        """Between which rows and places bytes are copied: pages, or a buffer for compressed ones."""
        if copies.is_compressed:
            return list(np.empty((len(copies.pages), copies.memory.shape[1]), np.uint8))
        return [self.pages[page] for page in copies.pages.tolist()]

    def _convert(self, copies: PlaceCopies, run: Callable[[PlaceFormat, int, int], None]) -> None:
        for index, page in enumerate(copies.pages.tolist()):
            form = self._form
            assert form is not None, "the device compresses nothing"
            self.copies.add(lambda form=form, index=index, page=page: run(form, index, page))

    def _copy(self, target: np.ndarray, source: np.ndarray) -> None:
        for half in halves(len(target)):
            self.copies.add(lambda half=half: np.copyto(target[half], source[half]))


def halves(n_bytes: int) -> tuple[slice, slice]:
    """The two layers of a page."""
    return slice(None, n_bytes // 2), slice(n_bytes // 2, None)


class TwinCopies(Copies):
    """Some copies of a `TwinDevice`, which runs until they are done when they are waited for."""

    def __init__(self, device: TwinDevice) -> None:
        self._device, self.mark = device, Mark()
        self._stored = self._loaded = np.zeros(0, np.uint64)

    def take_sums(self, rows: list[np.ndarray], is_stored: bool) -> None:
        sums = page_sums(np.stack(rows)) if rows else np.zeros(0, np.uint64)
        if is_stored:
            self._stored = sums
        else:
            self._loaded = sums

    def wait(self) -> CopiedPages:
        while not self.mark.is_reached:
            assert self._device.plans.can_run or self._device.copies.can_run, "the device hangs"
            self._device.run(1)
        return CopiedPages(self._stored, self._loaded, 0.001)
