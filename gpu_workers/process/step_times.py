"""Step times, learnt from steps that have ended, and so how long a step may run before it counts as hung. Pure.

Steps are told apart by their shape: number of rows, number of tokens and longest context, each as a power of two. The first
steps of each shape may capture, compile or tune, and have no limit of their own.
"""

from __future__ import annotations

from messages.steps import Plan
from messages.wire.arrays import total

_FACTOR = 20.0
_LEAST_STEPS = 4  # of one shape, before it has a limit
_MEMORY = 0.98  # the longest time of a shape is forgotten by 2 % with each step

Shape = tuple[int, int, int]


def shape_of(plan: Plan) -> Shape:
    """The shape of each step of a plan."""
    longest = int((plan.row_starts + plan.row_counts).max(initial=0))
    return len(plan.row_slots).bit_length(), total(plan.row_counts).bit_length(), longest.bit_length()


class StepTimes:
    """The step times of one engine. `least_s`: no step counts as hung before this time."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._by_shape: dict[Shape, tuple[int, float]] = {}  # number of steps, and the longest time of the last ones

    def add(self, shape: Shape, took_s: float) -> None:
        """A step has ended."""
        n_steps, longest_s = self._by_shape.get(shape, (0, 0.0))
        # the first step of a shape may have compiled: it says nothing about the others
        self._by_shape[shape] = n_steps + 1, max(took_s, longest_s * _MEMORY) if n_steps else 0.0

    def limit_s(self, shape: Shape) -> float:
        """How long a step of this shape may run; 0: not known."""
        n_steps, longest_s = self._by_shape.get(shape, (0, 0.0))
        return max(_FACTOR * longest_s, self._least_s) if n_steps >= _LEAST_STEPS else 0.0
