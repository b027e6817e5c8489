"""How much of the prompts goes into the next step, so that running sequences get their next tokens in time. Pure.

While sequences decode, a step may last `step_s` (or four decode steps, where these are long), and prompts may have
`prompt_share` of the device's time: a step with long chunks is followed by short ones. Time is counted in two accounts: one of
the prompt that is first in order, one of all others. Each plan adds half of what its decode rows pay for to each of them; a
chunk is charged by its cost. A long context needs long chunks, because each chunk reads all keys before it; such a chunk may
overdraw its account, from which nothing more is planned until it is balanced. So a very long prompt leaves the others their
half, and the prompt that is first in order gets its half whatever the others do.
"""

from __future__ import annotations

import math

from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.sequences.policy import StepEstimates
from actors.scheduler.settings import SchedulerSettings

_DECODE_STEPS = 4  # a step with prompts may last as long as this many decode steps, if that is longer than `step_s`
_QUEUE_WEIGHT = 8  # a waiting prompt counts as this many running sequences, if that gives prompts a larger share
_LEAST_PAID = 0.25  # part of `step_s`: short steps need no pauses between prompts
_ALONE = 10  # while nobody decodes a step may last this many times `step_s`, because somebody may come
_LEAST_TOKENS = 16  # in a chunk, unless less is left of the prompt
_KEYS_PER_TOKEN = 24  # a chunk has at least one token for each group of so many keys before it
_LEAST_PARTS = 16  # but that minimum takes at most this fraction (1 / 16) of the longest step

_PROBES = 2  # at most so many steps run without prompts, to measure what decode rows cost alone
_LEAST_ADDED = 0.25  # part of the time of the decode rows that prompts may add to any step
_BRIEF = 0.5  # of `step_s`: what a step may last while urgent requests come, as long as prompts do not pile up
_ENDLESS_S = math.inf


class PromptPace(StepEstimates):
    """The accounts of one planner, in seconds of the device. For each plan: `begin`, then `first` and `other`, then `end`."""

    def __init__(self, cost: StepCost, max_step_tokens: int, settings: SchedulerSettings) -> None:
        """`cost`: learnt from the gang's steps, by whoever applies the results."""
        self._cost = cost
        self._step_s, self._share = settings.step_s or 0.0, settings.prompt_share
        self._most_least = max(max_step_tokens // _LEAST_PARTS, _LEAST_TOKENS)
        self._n_probes = 0
        self._first_s = self._others_s = 0.0  # the accounts
        self._part_s = self._left_s = 0.0  # of this plan: what the first prompt may take, what all may still take
        self._part_tokens = self._left_tokens = 0

    def prompt_s(self, n_tokens: int) -> float:
        """What the first `n_tokens` of a prompt take, as the gang's steps have been measured; 0 before that."""
        return self._cost.prompt_s(0, n_tokens)

    def decode_s(self, n_rows: int) -> float:
        """What a step of `n_rows` decode rows takes, as the gang's steps have been measured; 0 before that."""
        return self._cost.decode_s(n_rows)

    def paid_s(self, n_decode_rows: int, n_prompts: int) -> float:
        """The time that a step of `n_decode_rows` decode rows, at least one, pays for prompts, in seconds."""
        share = max(self._share / (1.0 - self._share), _QUEUE_WEIGHT * (n_prompts - 1) / n_decode_rows)
        return max(self._cost.decode_s(n_decode_rows) * share, _LEAST_PAID * self._step_s)

    def brief_s(self, n_decode_rows: int, n_prompts: int) -> float:
        """How long a step with prompts may take while urgent requests come, which wait for the step that runs, in seconds.

        Half of `step_s` is enough where prompts are short beside their answers, as each step then has its part of them. Where
        prompts pile up, many short chunks would cost throughput: each prompt that is not computed yet makes the steps longer,
        as `_QUEUE_WEIGHT` rows more would, up to `step_s`.
        """
        if not self._step_s:
            return math.inf
        if not n_decode_rows:
            return self._step_s
        grown_s = self._cost.decode_s(n_decode_rows) * (1.0 + _QUEUE_WEIGHT * n_prompts / n_decode_rows)
        return min(max(grown_s, _BRIEF * self._step_s), self._step_s)

    def begin(self, n_decode_rows: int, n_tokens: int, n_prompts: int, longest_s: float = math.inf) -> None:
        """Begin a plan that has `n_decode_rows` rows and room for `n_tokens` more. `n_prompts`: how many could have a part.
        `longest_s`: the whole step takes no longer, but prompts may add a quarter to the time of its decode rows."""
        parts = 2 if n_prompts > 1 else 1
        self._left_s, paid_s = self._limits_s(n_decode_rows, n_prompts)
        if longest_s < math.inf:
            decode_s = self._cost.decode_s(n_decode_rows)
            self._left_s = min(self._left_s, max(longest_s - decode_s, decode_s * _LEAST_ADDED))
        self._part_s = self._left_s / parts
        if self._left_s < _ENDLESS_S and not self._cost.is_known:
            n_tokens = min(n_tokens, self._most_least)  # one careful step tells what prompts cost
        self._left_tokens, self._part_tokens = n_tokens, -(-n_tokens // parts)
        if not n_decode_rows:
            self._first_s = self._others_s = 0.0  # nobody has been kept waiting
        self._first_s = min(self._first_s + paid_s / parts, self._left_s)
        self._others_s = min(self._others_s + paid_s / 2, self._left_s / 2)

    @property
    def has_first(self) -> bool:
        """True if the first prompt in order may get tokens in this plan."""
        return self._first_s > 0.0 and self._left_tokens > 0

    @property
    def has_others(self) -> bool:
        """True if one more of the others may get tokens in this plan."""
        return self._others_s > 0.0 and self._left_s > 0.0 and self._left_tokens > 0

    def first(self, start: int, wanted: int) -> int:
        """How many tokens of the first prompt in order this plan computes, from position `start` on: 1 to `wanted`.

        Call it only while `has_first`."""
        n_tokens = self._chunk(start, min(wanted, self._part_tokens), self._part_s)
        self._first_s -= self._charge(start, n_tokens)
        if n_tokens == wanted and self._first_s > 0.0:  # the others may have the rest
            self._others_s, self._first_s = self._others_s + self._first_s, 0.0
        return n_tokens

    def other(self, start: int, wanted: int) -> int:
        """As `first`, for one of the other prompts. Call it only while `has_others`."""
        n_tokens = self._chunk(start, min(wanted, self._left_tokens), self._left_s)
        self._others_s -= self._charge(start, n_tokens)
        return n_tokens

    def end(self) -> None:
        """What the others have left is for the first one, in the next plan."""
        if self._others_s > 0.0:
            self._others_s, self._first_s = 0.0, self._first_s + self._others_s

    def rest(self) -> None:
        """No prompt is there: forget what earlier prompts have overdrawn."""
        self._first_s = self._others_s = 0.0

    def _chunk(self, start: int, most: int, limit_s: float) -> int:
        least = max(min(start // _KEYS_PER_TOKEN, self._most_least), _LEAST_TOKENS)
        if most <= least or limit_s == _ENDLESS_S:
            return most
        return max(self._cost.tokens_within(start, limit_s, most), least)

    def _charge(self, start: int, n_tokens: int) -> float:
        cost_s = self._cost.prompt_s(start, n_tokens)
        self._left_s -= cost_s
        self._left_tokens -= n_tokens
        return cost_s

    def _limits_s(self, n_decode_rows: int, n_prompts: int) -> tuple[float, float]:
        """(longest time that prompts may add to a step with so many decode rows, time that these rows pay for)."""
        if not self._step_s or not (n_decode_rows or self._cost.is_known):
            return _ENDLESS_S, _ENDLESS_S
        longest_s = _ALONE * self._step_s
        if not n_decode_rows:
            return longest_s, longest_s
        if self._cost.is_known and not self._cost.is_decode_known and self._n_probes < _PROBES:
            self._n_probes += 1
            return 0.0, 0.0  # a step without prompts tells what they may cost
        decode_s, paid_s = self._cost.decode_s(n_decode_rows), self.paid_s(n_decode_rows, n_prompts)
        return max(self._step_s - decode_s, (_DECODE_STEPS - 1) * decode_s, min(paid_s, longest_s)), paid_s
