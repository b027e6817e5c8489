"""Where the steps of a GPU wait while an urgent one runs.

A step that shares the device with an urgent one slows it by half. So the usual steps pass a gate after every few layers, and
wait there while it is closed: the urgent step then has the device for itself. The kernels of a gate are a part of captured
steps, so nothing is split, and no step knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StepGate:
    """The gate of one rank. `closed`: [1] int32 on the device, 1 while an urgent step runs, else 0. `looks`: [1] int32 there,
    how often the last step that passed has looked at it in vain."""

    def __init__(self, device: torch.device) -> None:
        self.closed = torch.zeros(1, dtype=torch.int32, device=device)
        self.looks = torch.zeros(1, dtype=torch.int32, device=device)
        self.is_urgent = False  # an urgent step is being launched or captured, which passes no gate

    @contextmanager
    def without(self) -> Iterator[None]:
        """The steps that are launched or captured inside pass no gate."""
        self.is_urgent = True
        try:
            yield
        finally:
            self.is_urgent = False

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Closes the gate on the current stream before what is launched inside, and opens it after that."""
        self.closed.fill_(1)
        try:
            with self.without():
                yield
        finally:
            self.closed.zero_()
