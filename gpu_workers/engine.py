"""The protocol of an engine, which a step thread drives. The model runner and the hash chain implement it.

`launch` starts one plan, `collect` waits for its results. Plans are launched strictly in order and collected in the same order;
up to `max_in_flight` may be launched before the first is collected, because sampled tokens stay with the engine. An engine
whose capacity says `runs_beside` may have one urgent plan more, which runs beside those launched before it, and before those
launched later; a thread of its own collects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import numpy as np

from gpu_workers.vault.exchange_end import ExchangeEnd
from gpu_workers.vault.page_places import PagePlaces
from gpu_workers.vault.region import Region
from messages.errors import TardigradeError
from messages.steps import EngineCapacity, Plan, Result
from messages.wire.arrays import int32s

Launched = TypeVar("Launched")  # what `launch` of an engine returns
ReportLoading = Callable[[str, float], None]  # (phase, fraction of this phase that is done)


class PlanRefused(TardigradeError):
    """A plan cannot be run, and nothing of it has been done. `suspects`: int32 array of the slots that may have caused it."""

    def __init__(self, reason: str, suspects: np.ndarray | list[int] = ()) -> None:  # pyright: ignore[reportArgumentType]
        super().__init__(reason)
        self.suspects = int32s(np.unique(np.asarray(suspects, dtype=np.int64)))


class RankLost(TardigradeError):
    """Another rank of the gang has ended within a collective. It says nothing about the memory of this one, whose finished
    steps have written all that they report; whoever has ended knows whether its own is damaged."""


class Engine(Protocol[Launched]):
    """One rank's model with its slots and pages. Used from the step thread; `collect` may run on other threads."""

    max_in_flight: int  # 1: `launch` has done the work when it returns
    kv_region: Region | None = None  # the memory that holds the pages; None: it cannot be shared
    host_tier: PagePlaces | None = None  # has as many places as the capacity says; None: there are none
    exchange: ExchangeEnd | None = None  # has as many places as the capacity says; None: there are none

    @property
    def is_compiling(self) -> bool:
        """True while a step waits for a kernel or a grammar that is compiled, and so may take long. Read by any thread."""
        return False

    @property
    def late_compilations(self) -> int:
        """Kernels that were compiled since the warm-up, while requests waited. Read by any thread."""
        return 0

    def capacity(self) -> EngineCapacity:
        """What the gang can hold; each limit is the smallest of its ranks'. With the step times of the warm-up."""
        ...

    def prepare_grammar(self, grammar: str) -> Sequence[Future[Any]]:
        """Begin to compile a grammar that a later plan will have. Returns what must be done then. Called by any thread."""
        return ()

    def reset(self, epoch: int) -> None:
        """Forget all slots; plans of this epoch follow. Pages keep their content."""
        ...

    def launch(self, plan: Plan) -> Launched:
        """Start all steps of a plan.

        Raises: PlanRefused if nothing has changed. After any other exception the engine cannot be used any more.
        """
        ...

    def collect(self, launched: Launched) -> Iterator[Result]:
        """The results of a launched plan, one for each of its steps, each as soon as it is available."""
        ...

    def return_pages(self, pages: np.ndarray) -> None:
        """Give the memory of these pages back to the system; they read as zeros when they are used again. pages: [n] int32,
        distinct. Counts as done after all launched plans. An engine that says no `n_least_pages` is never asked.

        Raises: ValueError for an unknown page."""

    def look_ahead(self) -> None:
        """Called after the results of a plan, by the thread that has collected them: prepare what the next one will need."""

    def close(self) -> None:
        """Release the device and leave the group of ranks."""
        ...
