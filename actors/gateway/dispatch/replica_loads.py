"""The loads of all replicas, as their schedulers have reported them. Pure."""

from __future__ import annotations

from collections.abc import Callable

from messages.generation.replica_load import ReplicaLoad
from messages.ids import model_of


class ReplicaLoads:
    """The last report of each scheduler, by its name."""

    def __init__(self) -> None:
        self._reports: dict[str, ReplicaLoad] = {}
        self.version = 0  # rises with each change
        self.on_report: Callable[[str], None] = lambda name: None  # called with the name of a scheduler that has reported

    def note(self, name: str, load: ReplicaLoad) -> None:
        """A scheduler has reported its load. An old report is ignored."""
        known = self._reports.get(name)
        if known is None or load.number > known.number:
            self._reports[name] = load
            self.version += 1
            self.on_report(name)

    @property
    def have_level(self) -> bool:
        """True if any replica has a level of degradation, which is rare."""
        return any(one.level for one in self._reports.values())

    def of(self, name: str) -> ReplicaLoad | None:
        """The last report of a scheduler; None if it has sent none, as one of the last release."""
        return self._reports.get(name)

    def of_model(self, model: int) -> ReplicaLoad | None:
        """The last report of the first replica of a model that knows what prefill takes; None without one."""
        known = (load for name, load in sorted(self._reports.items()) if model_of(name) == model and load.token_s)
        return next(known, None)

    def remove(self, name: str) -> None:
        """A scheduler is dead or new: nothing is known of its load."""
        self._reports.pop(name, None)
        self.version += 1
