"""The host tier of a GPU in simulated ranks of the hash chain: the real places, tags and queue of copies, over a device that
copies in virtual time.

    step thread      queues the copies of a message; a plan that uses their pages lets them run first, or their layers
    device           copies a half page at a time, now and then
    moves thread     waits for the end of the copies, then answers; it may come long after the results of later plans

So a scheduler has results of plans that are sent behind a load before it knows whether the load has failed.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.copy_stream import Copies, PlaceCopies
from gpu_workers.pages.framed_places import FramedPlaces, FrameSizes
from gpu_workers.pages.host_form import HostForm
from gpu_workers.pages.pinned_places import PLACE_ALIGNED_BYTES, PinnedPlaces
from gpu_workers.pages.place_table import PlaceTable
from gpu_workers.pages.queued_places import QueuedPlaces
from gpu_workers.process.page_moves import PageMover
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.exchange_end import DoneExchange, MappedPlaces
from gpu_workers.vault.exchange_places import ExchangePlaces
from gpu_workers.vault.page_places import DoneMoves, PagePlaces, QueuedMoves
from messages import steps
from messages.caches.exchange import ExchangePages
from messages.caches.page_moves import MovePages
from tests.support.pages.tier_bench import Pins
from tests.support.pages.twin_device import TwinCopies, TwinDevice
from tests.support.simulation.copies.faults import CopyFaults
from tests.support.simulation.edges import Fault

_PIN_S = (0.0, 0.4)  # until then answers are early
_MOST_AT_ONCE = 12  # half pages


class _Device(TwinDevice):
    """Plans run when they are launched, so those that are held let the copies run first."""

    n_left = -1  # pages that are copied still; -1: all

    def queue(self, stored: PlaceCopies, loaded: PlaceCopies) -> Copies:
        copies = super().queue(stored, loaded)
        asyncio.get_running_loop().call_later(self._rng.uniform(0.0, 0.01), self.run, self._rng.randrange(_MOST_AT_ONCE))
        return copies

    def hold_plans(self, copies: Copies) -> None:
        assert isinstance(copies, TwinCopies)
        copies.wait()

    def wait(self, layer: int) -> None:
        while not self.gates[layer].is_reached:
            self.run(1)

    def _done(self, copies: PlaceCopies, rows: list[np.ndarray]) -> list[tuple[int, np.ndarray]]:
        done = super()._done(copies, rows)
        if self.n_left >= 0:
            done = done[: self.n_left]
            self.n_left -= len(done)
        return done


class _LateMoves(QueuedMoves):
    """Moves of a message with loads, and what happens to them."""

    def __init__(self, queued: QueuedMoves, faults: CopyFaults, fault: Fault | None) -> None:
        self._queued, self._faults, self._fault = queued, faults, fault

    def wait(self) -> DoneMoves:
        with self._faults.edges.around("ends a load"):
            if self._fault is Fault.FAILS:
                raise RuntimeError("simulated error of a copy")
            return self._queued.wait()


class _Late(PagePlaces):
    """The host tier of a simulated rank, as a GPU's. `follow` says which device copies."""

    table: PlaceTable
    takes_s = 0.0  # of the copies that were queued last

    def follow(self, device: _Device, faults: CopyFaults) -> None:
        self._device, self._faults = device, faults

    def bytes_of(self, place: int) -> np.ndarray:
        """The memory where the content of a place lies, or will."""
        raise NotImplementedError

    def queue(self, moves: MovePages) -> QueuedMoves:
        has_loads = len(moves.loaded_places) > 0
        if not has_loads:
            self.takes_s = self._faults.takes_s(None, has_loads)
            return self._queue_here(moves)
        with self._faults.edges.around("begins a load") as fault:
            fault = fault or self._faults.of_load()
            self.takes_s = self._faults.takes_s(fault, has_loads)
            self._harm(fault, moves)
            queued = self._queue_here(moves)
            self._device.n_left = -1
        return _LateMoves(queued, self._faults, fault)

    def _queue_here(self, moves: MovePages) -> QueuedMoves:
        queued = super().queue(moves)
        assert queued is not None
        return queued

    def _harm(self, fault: Fault | None, moves: MovePages) -> None:
        chance, places = self._faults.chance, moves.loaded_places
        # the hash chain reads the state before a token, which is in the last page of a prefix
        chosen = chance.choice((len(places) - 1, chance.randrange(len(places))))
        if fault is Fault.FLIPS:
            self.bytes_of(int(places[chosen])).view(np.uint64)[:] ^= np.uint64(1 << chance.randrange(64))
        elif fault is Fault.EMPTIES:
            self.table.forget(places[chosen : chosen + 1])
        elif fault is Fault.SHORTENS:
            self._device.n_left = len(moves.stored_pages) + chosen


class _LatePlaces(_Late, QueuedPlaces):
    """With one form of all pages."""

    def bytes_of(self, place: int) -> np.ndarray:
        return self._memory.places[place]


class _LateFrames(_Late, FramedPlaces):
    """The adaptive tier."""

    def bytes_of(self, place: int) -> np.ndarray:
        frame, unit = self.rooms.frame_of(place), self.rooms.unit_of(place)
        return self._frames[frame] if frame is not None else self._units[unit or 0]


def _sizes_of(host: HostForm) -> FrameSizes:
    """As many units of an adaptive tier as if they were no larger than a compressed page of the hash chain."""
    return FrameSizes(max(host.n_bytes // (2 * host.place_bytes), 1), 2, PLACE_ALIGNED_BYTES)


def _places_of(host: HostForm, copies: CopyQueue) -> _LatePlaces | _LateFrames:
    if host.form is not None and host.is_adaptive:
        return _LateFrames(_sizes_of(host), _sizes_of(host).n_places, host.form, copies, Pins())
    memory = PinnedPlaces(host.n_places, host.place_bytes, Pins(), is_compressed=host.form is not None)
    return _LatePlaces(memory, copies)


class _OrderedExchange(ExchangePlaces):
    """Does moves at once, but as a GPU does them, whose exchange has the same stream: after all copies that were queued."""

    def __init__(self, pages: np.ndarray, n_places: int, copies: CopyQueue) -> None:
        super().__init__(pages, n_places)
        self._copies = copies

    def move(self, moves: ExchangePages, lender: MappedPlaces | None) -> DoneExchange:
        for copies in self._copies.in_flight.values():
            copies.wait()
        return super().move(moves, lender)


class _LateEngine(HashChainEngine):
    """The hash chain with the host tier of a GPU."""

    faults: CopyFaults

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        pages = self._pages.view(np.uint8).reshape(settings.hash_chain_pages, -1)
        self._device = _Device(pages, self.faults.chance, self._host.form, by_layers=True)
        self.tier = _places_of(self._host, CopyQueue(self._device, len(pages)))
        self.tier.follow(self._device, self.faults)
        self.host_tier = self.tier
        if self.exchange is not None:
            self.exchange = _OrderedExchange(pages, self.capacity().n_exchange_pages, self.tier.copies)
        if not settings.vault:
            self.tier.open()

    def capacity(self) -> steps.EngineCapacity:
        n_places = _sizes_of(self._host).n_places if self._host.is_adaptive else self._host.n_places
        return msgspec.structs.replace(super().capacity(), moves_beside_steps=True, n_host_pages=n_places)

    def launch(self, plan: steps.Plan) -> Any:
        arrives = False
        if self.tier.copies.in_flight:
            after = copy.deepcopy(self._slots)
            after.apply(plan)
            arrives = self.tier.copies.hold(plan, after)
        if not arrives:
            return super().launch(plan)
        for layer in (0, 1):
            self._device.wait(layer)
        launched = super().launch(plan)
        launched.results[:] = [msgspec.structs.replace(result, compute_s=math.nan) for result in launched.results]
        return launched


class _Mover(PageMover):
    """Waits for copies in virtual time, for one message after the other."""

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        super().__init__(on_error)
        self._late = deque[tuple[float, str, Callable[[], None]]]()
        self._takes_s = 0.0

    def move(self, tier: Any, moves: MovePages, answer: Any) -> None:
        queued = tier.queue(moves)
        self._takes_s = tier.takes_s
        super().move(SimpleNamespace(queue=lambda _: queued), moves, answer)  # pyright: ignore[reportArgumentType]

    def put(self, doing: str, finish: Callable[[], None]) -> None:
        self._n_queued += 1
        self._late.append((self._takes_s, doing, finish))
        if len(self._late) == 1:
            self._go_on()

    def after_all(self, finish: Callable[[], None]) -> None:
        if self._late:
            self.put("moves", finish)
        else:
            finish()

    def close(self, timeout_s: float) -> None:
        """There is no thread."""

    def _go_on(self) -> None:
        asyncio.get_running_loop().call_later(self._late[0][0], self._finish)

    def _finish(self) -> None:
        _, doing, finish = self._late[0]
        try:
            finish()
        except Exception as error:
            self._on_error(doing, error)
            return
        self._late.popleft()
        self._n_done += 1
        if self._late:
            self._go_on()


def make_copies_beside(patch: Callable[[Any, str, Any], None], faults: CopyFaults) -> None:
    """Let ranks of the hash chain have such a host tier. `patch(object, name, value)` must undo itself after the simulation."""
    import gpu_workers.hash_chain_engine as hash_chain_engine
    import gpu_workers.pages.pinned_places as pinned_places
    import gpu_workers.process.step_thread as step_thread

    class Thread:
        """Pins the memory on the loop, a little later."""

        def __init__(self, target: Callable[[], None], **options: Any) -> None:
            self._target = target

        def start(self) -> None:
            asyncio.get_running_loop().call_later(faults.chance.uniform(*_PIN_S), self._target)

    patch(hash_chain_engine, "HashChainEngine", type("LateEngine", (_LateEngine,), {"faults": faults}))
    patch(step_thread, "PageMover", _Mover)
    patch(pinned_places, "threading", SimpleNamespace(Thread=Thread))
