"""A device with two streams, in one thread: whoever drives it says how far it has come. Plans run on one stream, copies of
pages on the other, a half page at a time, so that a copy that runs too early or too late is seen. Each half is a layer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpu_workers.layers.page_sums import page_sums
from gpu_workers.pages.copy_stream import CopiedPages, Copies, CopyStream, PlaceCopies


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
    """`pages`: [n_pages, bytes of a page] uint8. rng: chooses which stream goes on. by_layers: loads come one half of all
    pages after the other, so that a plan may begin with the first."""

    def __init__(self, pages: np.ndarray, rng: random.Random, *, by_layers: bool = False) -> None:
        self.pages, self._rng, self._by_layers = pages, rng, by_layers
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
        self.copies.add(lambda: done.take_sums(stored.pages, is_stored=True))
        for page, place in self._done(stored):
            self._copy(stored.memory[place], self.pages[page])
        loads = [(self.pages[page], loaded.memory[place]) for page, place in self._done(loaded)]
        if self._by_layers and len(loaded.pages):
            self._load_layers(loads)
            done.comes_by_layers = True
        else:
            for target, source in loads:
                self._copy(target, source)
        self.copies.add(lambda: done.take_sums(loaded.pages, is_stored=False))
        self.copies.add(done.mark.reach)
        return done

    def hold_plans(self, copies: Copies) -> None:
        assert isinstance(copies, TwinCopies)
        self.plans.wait(copies.mark)

    def wait(self, layer: int) -> None:
        """As of `LayerGates`."""
        self.plans.wait(self.gates[layer])

    def _done(self, copies: PlaceCopies) -> list[tuple[int, int]]:
        """(page, place) of the copies that the device does: all of them."""
        return list(zip(copies.pages.tolist(), copies.places.tolist(), strict=True))

    def _load_layers(self, loads: list[tuple[np.ndarray, np.ndarray]]) -> None:
        for half in halves(self.pages.shape[1]):
            for target, source in loads:
                self.copies.add(lambda target=target[half], source=source[half]: np.copyto(target, source))
            self.gates = [self.gates[1], self.copies.mark()]

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

    def take_sums(self, pages: np.ndarray, is_stored: bool) -> None:
        sums = page_sums(self._device.pages[pages])
        if is_stored:
            self._stored = sums
        else:
            self._loaded = sums

    def wait(self) -> CopiedPages:
        while not self.mark.is_reached:
            assert self._device.plans.can_run or self._device.copies.can_run, "the device hangs"
            self._device.run(1)
        return CopiedPages(self._stored, self._loaded, 0.001)
