"""How long a step is expected to take, learnt from steps that have ended and from the warm-up of the gang. Pure.

Steps are told apart by their shape: number of rows, number of tokens and longest context, each as a power of two. A shape that
has not been computed twice yet is estimated from every known one: a step takes at most in proportion to its tokens (or rows),
and attention at most in proportion to its context. Each estimate is an upper bound, so the least one counts.

The scheduler keeps these times, because it outlives its gang: a gang that takes over has limits from its first step.
"""

from __future__ import annotations

from collections.abc import Iterable

from messages.steps import StepTime

_MEMORY = 0.98  # the longest time of a shape is forgotten by 2 % with each step
_CONTEXT_TOKENS = 512  # from this context on attention may take as long as all the rest of a step
_LEAST_S, _NEVER_S = 1e-6, 1e9  # no step takes less, or more

Shape = tuple[int, int, int]  # bit lengths of rows, tokens and context


def shape_of(rows: int, tokens: int, context: int) -> Shape:
    """The shape of a step. context: the tokens of its longest row, those of earlier steps included."""
    return rows.bit_length(), tokens.bit_length(), context.bit_length()


class StepTimes:
    """The step times of one replica."""

    def __init__(self) -> None:
        self._longest_s: dict[Shape, float] = {}  # the longest time of the last steps
        self._seen: set[Shape] = set()  # shapes with one finished step

    def warmed_up(self, times: Iterable[StepTime]) -> None:
        """A gang has reported the times of its warm-up. What steps have shown counts more."""
        for time in times:
            self._longest_s.setdefault(shape_of(time.rows, time.tokens, time.context), max(time.took_s, _LEAST_S))

    def add(self, shape: Shape, took_s: float) -> None:
        """A step has ended. The first step of a shape may have compiled: it says nothing about the others."""
        if not 0.0 <= took_s < _NEVER_S:  # ignores NaN too: a wrong clock of a device
            return
        took_s = max(took_s, _LEAST_S)  # 0 would mean that nothing is known
        longest_s = self._longest_s.get(shape)
        if longest_s is not None:
            self._longest_s[shape] = max(took_s, longest_s * _MEMORY)
        elif shape in self._seen:
            self._longest_s[shape] = took_s
        else:
            self._seen.add(shape)

    def expected_s(self, shape: Shape) -> float:
        """The expected time of a step of this shape, rather too long than too short; 0 while nothing is known."""
        known_s = self._longest_s.get(shape)
        if known_s is not None:
            return known_s
        return min((took_s * _growth(known, shape) for known, took_s in self._longest_s.items()), default=0.0)


def _growth(known: Shape, wanted: Shape) -> float:
    """How many times as long as a step of shape `known` one of shape `wanted` may take; at least 1."""
    larger = max(wanted[0] - known[0], wanted[1] - known[1], 0)
    context, known_context = 1 << wanted[2], 1 << known[2]
    return 2.0**larger * max((_CONTEXT_TOKENS + context) / (_CONTEXT_TOKENS + known_context), 1.0)
