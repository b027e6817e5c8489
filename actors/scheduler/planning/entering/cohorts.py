"""Which sequences decode in a plan of a gang with several stages, so that its stages compute different plans at once. Pure.

A step begins in the first stage only when the tokens that the last stage has sampled for its sequences are known there. So a
plan leaves out the sequences of the plans before it that may still be on their way, one fewer than there are stages, and takes
at most its share of all: sequences form cohorts, whose steps follow each other through the stages. Nobody is a member: a cohort
is what a plan has taken, so cohorts stay even while sequences come and go. Chunks of prompts depend on no sampled token, and
may be in every plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.sequences.sequence import Sequence

_MOST_AHEAD = 2  # steps of a sequence that are planned without a result, while there is nothing else to compute


class Cohorts:
    """The newest plans of one gang. `stages`: of its pipeline; with one stage every plan takes all."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._newest: deque[set[int]] = deque(maxlen=stages - 1)  # numbers of the sequences that sample in a plan

    def choose(self, decoding: list[Sequence], has_prompts: bool, may_run: Callable[[Sequence], bool]) -> list[Sequence]:
        """Those of the `decoding` sequences that the next plan takes, in order.

        `has_prompts`: the plan may have prompts to compute. Without any, sequences on their way are planned ahead rather than
        nothing: the first stage goes on as soon as their tokens come, without a way to the scheduler and back."""
        if self._stages == 1:
            return decoding
        able = [s for s in decoding if s.n_samples_left > 0 and may_run(s)]
        share = -(-len(able) // self._stages)
        free = [s for s in able if not s.in_flight or not any(s.number in numbers for numbers in self._newest)]
        if not free and not has_prompts:
            free = [s for s in able if s.in_flight < _MOST_AHEAD]
        return free[:share]

    def planned(self, builder: PlanBuilder) -> None:
        """A plan has these rows."""
        if self._stages > 1:
            builder.unfold()
            self._newest.append({row.sequence.number for row in builder.rows if row.samples})
