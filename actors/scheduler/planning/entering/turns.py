"""Steps that stay short while urgent requests may come: what would make a step long takes turns. Pure.

An urgent request waits for the step that runs. While such requests come, prompts and sequences that decode are computed in
steps of their own if both together would last too long, and sequences that decode take turns in two halves if all of them
would. A second step reads the weights once more, so this costs throughput; without `scheduler.urgent_step_s` nothing takes
turns.
"""

from __future__ import annotations

from collections.abc import Sequence as Values
from dataclasses import dataclass

from actors.scheduler.planning.prompt_pace import PromptPace
from actors.scheduler.sequences.policy import SchedulingPolicy
from actors.scheduler.sequences.sequence import Sequence

_HALVES = 2
_LEAST_GAIN = 0.8  # halves are worth it if one of them takes less than this part of the time of the whole


@dataclass(frozen=True)
class Turn:
    """What one plan computes. `longest_s`: how long its prompts may make it, in seconds; None: no turns are taken."""

    decoding: list[Sequence]
    is_of_prompts: bool = False  # no other rows than these and those of prompts
    takes_prompts: bool = True
    longest_s: float | None = None


class StepTurns:
    """The turns of one gang. `urgent_step_s`: no step should last longer, in seconds; 0: nobody takes turns. A step of prompts
    may last as long as one of the sequences that decode."""

    def __init__(self, policy: SchedulingPolicy, pace: PromptPace, urgent_step_s: float) -> None:
        self._policy, self._pace, self._longest_s = policy, pace, urgent_step_s
        self._credit_s = 0.0  # time that decoding sequences have paid for prompts
        self._last = -1  # number of the sequence that was the last one in its half

    def next(self, decoding: list[Sequence], n_prompts: int) -> Turn:
        """The turn of the plan that is being made. `decoding`: the sequences that decode, in order. `n_prompts`: the prompts
        that could have a part."""
        if not self._longest_s or not self._policy.awaits_urgent():
            return Turn(decoding)
        decode_s = self._pace.decode_s(len(decoding))
        n_rows, longest_s = len(decoding), self._longest_s
        if not decode_s or 2 * decode_s <= longest_s or self._pace.brief_s(n_rows, n_prompts) <= longest_s:  # room for both
            self._credit_s = 0.0
            return Turn(decoding, longest_s=self._longest_s)
        half_s = self._pace.decode_s(-(-len(decoding) // _HALVES))
        takes_halves = decode_s > self._longest_s and half_s < _LEAST_GAIN * decode_s
        longest_s = max(self._longest_s, half_s if takes_halves else decode_s)
        if n_prompts and self._credit_s > 0.0:
            self._credit_s -= longest_s
            return Turn([s for s in decoding if self._policy.may_hurry(s)], is_of_prompts=True, longest_s=longest_s)
        rows = self._half(decoding) if takes_halves else decoding
        paid_s = self._pace.paid_s(len(rows), n_prompts)
        self._credit_s = min(self._credit_s + paid_s, longest_s) if n_prompts else 0.0
        return Turn(rows, takes_prompts=False)

    def longest_s(self, turn: Turn, n_decode: int, n_prompts: int, running: Values[Sequence]) -> float:
        """How long the step of this turn may take for the sake of others, in seconds. `n_decode`: its rows that decode.
        `n_prompts`: the prompts that could have a part. `running`: the sequences in slots."""
        if turn.longest_s is not None:
            return turn.longest_s
        longest_s = self._policy.longest_step_s(running)
        return min(longest_s, self._pace.brief_s(n_decode, n_prompts)) if self._policy.awaits_urgent() else longest_s

    def _half(self, decoding: list[Sequence]) -> list[Sequence]:
        """The half whose turn it is, and those that hurry. It goes on after the last one, so everybody gets a turn."""
        others = sorted((s for s in decoding if not self._policy.may_hurry(s)), key=lambda s: s.number)
        n_half = -(-len(others) // _HALVES)
        first = next((index for index, s in enumerate(others) if s.number > self._last), 0)
        taken = {s.number for s in (others + others)[first : first + n_half]}
        self._last = (others + others)[first + n_half - 1].number if others else -1
        return [s for s in decoding if s.number in taken or self._policy.may_hurry(s)]
