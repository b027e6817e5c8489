"""How long a step takes: what `steady_state` asks, whether it was measured here or follows from the device. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class TimePart(Enum):
    """What a step spends its time on."""

    WEIGHTS = "reading the weights"
    PRODUCTS = "arithmetic of the steps"
    KEYS = "reading keys and values"
    KERNELS = "small kernels and sums between ranks"
    STEPS = "steps"  # measured as a whole
    PROMPTS = "computing prompts"


class ReplicaTimes(Protocol):
    """Times of one replica, in seconds, without speculation and without found prefixes."""

    @property
    def hop_s(self) -> float:
        """What a first token takes beside the device: processes, HTTP."""
        ...

    def step_s(self, n_sequences: float, context_tokens: float) -> float:
        """One token for each of so many sequences, each with so many keys."""
        ...

    def parts(self, n_sequences: float, context_tokens: float) -> dict[TimePart, float]:
        """The same, by what it is spent on."""
        ...

    def prompt_s(self, n_tokens: int) -> float:
        """What a prompt adds to the work of a replica that has other work."""
        ...

    def lone_prompt_s(self, n_tokens: int) -> float:
        """A prompt that has the device for itself."""
        ...


@dataclass(frozen=True)
class MeasuredTimes(ReplicaTimes):
    """Steps of some numbers of sequences, and prompts, as they were measured on this machine through a whole server.

    `steps`: (sequences, seconds), ascending; between them it is interpolated, above them the last slope goes on.
    """

    steps: Sequence[tuple[int, float]]
    prompt_token_s: float
    prompt_start_s: float  # of a first token, whatever its prompt's length

    @property
    def hop_s(self) -> float:
        """None beside the times that were measured, which went through a whole server."""
        return 0.0

    def step_s(self, n_sequences: float, context_tokens: float) -> float:
        """A measured step; the measurement had the workload's own lengths, so `context_tokens` change nothing."""
        return interpolated(self.steps, n_sequences)

    def parts(self, n_sequences: float, context_tokens: float) -> dict[TimePart, float]:
        """A measured step has one part, itself."""
        return {TimePart.STEPS: self.step_s(n_sequences, context_tokens)}

    def prompt_s(self, n_tokens: int) -> float:
        """The measured time of a token, for each token of the prompt."""
        return n_tokens * self.prompt_token_s

    def lone_prompt_s(self, n_tokens: int) -> float:
        """The same, and what a first token takes beside."""
        return self.prompt_start_s + n_tokens * self.prompt_token_s


def interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at `x` between the points (x, y), ascending; below the first its y, above the last along the last slope, which
    is not below zero."""
    if x <= points[0][0] or len(points) == 1:
        return points[0][1]
    below = max((index for index, point in enumerate(points[:-1]) if point[0] <= x), default=0)
    (x0, y0), (x1, y1) = points[below], points[below + 1]
    slope = (y1 - y0) / (x1 - x0)
    return y1 + max(slope, 0.0) * (x - x1) if x > x1 else y0 + slope * (x - x0)
