"""What a step thread reports to the event loop of its process."""

from __future__ import annotations

from typing import Protocol

from gpu_workers.process.gang_agreement import EpochId
from messages.caches.moves import Moved
from messages.steps import EngineCapacity, Result, StepFailed


class StepEvents(Protocol):
    """What a step thread reports. All methods are called on the event loop. `epoch`: as given to `submit` with the command."""

    def on_loading(self, phase: str, fraction: float) -> None:
        """The engine is being built: the phase, and the fraction of it that is done."""
        ...

    def on_loaded(self, capacity: EngineCapacity) -> None:
        """The engine can run plans."""
        ...

    def on_reset(self, epoch: EpochId) -> None:
        """The engine has forgotten its slots."""
        ...

    def on_result(self, epoch: EpochId, result: Result) -> None:
        """A step has ended. result: its sampled tokens."""
        ...

    def on_refused(self, epoch: EpochId, failure: StepFailed) -> None:
        """A plan was refused; nothing of it is done, and no plan after it until the next Reset."""
        ...

    def on_moved(self, epoch: EpochId, moved: Moved) -> None:
        """Pages were moved to and from the host tier, or came from the disk."""
        ...

    def on_fault(self, doing: str, error: BaseException) -> None:
        """The engine raised `error` and cannot be used any more. This is the last event."""
        ...
