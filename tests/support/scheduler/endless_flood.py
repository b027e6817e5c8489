"""One sequence among others that never stop coming, at a scheduler that may die and whose clock may jump.

Time is made up. What a gateway would do after a death is done here: it submits what has not ended again, with the tokens that
it has and with its age.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from actors.scheduler.sequences.sequence import Sequence
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from tests.support.planner_bench import PlannerBench

_N_WAITING = 8  # others are added until so many wait


@dataclass(frozen=True)
class Harm:
    """How likely it is, with each step, that the scheduler dies, and that its clock jumps forward by up to `jump_s`."""

    death: float = 0.0
    jump: float = 0.0
    jump_s: float = 0.0


class EndlessFlood:
    """`draw`: the terms of the next of the others. `step_s`: the time of each step."""

    def __init__(
        self, settings: dict[str, Any], chance: random.Random, draw: Callable[[], Mapping[str, Any]], step_s: float, harm: Harm
    ) -> None:
        self._settings, self._chance, self._draw, self._step_s, self._harm = settings, chance, draw, step_s, harm
        self._fields = {"n_slots": chance.choice((1, 2, 4)), "n_pages": chance.choice((24, 128))}
        self._arrived_s: dict[str, float] = {}  # of what has not ended, on the clock of the gateway
        self._number, self.time_s = 0, 0.0
        self.n_deaths = 0
        self._bench = self._new_bench()

    def submit(self, n_prompt: int, **terms: Any) -> str:
        """A new request; returns its name."""
        self._number += 1
        terms = {"max_tokens": 5, "speculation": False} | terms
        name = f"r{self._number}"
        tokens = int32s([self._number % 90] * n_prompt)
        self._arrived_s[name] = self.time_s
        self._add(Submit(self._number, name, tokens, n_prompt, Sampling(), Terms(**terms)))
        return name

    def is_over(self, name: str) -> bool:
        """True if it has ended."""
        return name not in self._arrived_s

    def step(self) -> None:
        """The others come, a plan is made and computed, and what may go wrong does so."""
        while len(self._bench.queues.waiting) < _N_WAITING:
            terms = dict(self._draw())
            self.submit(self._chance.randint(1, 40), max_tokens=self._chance.randint(1, 20), **terms)
        self.compute()
        if self._chance.random() < self._harm.death:
            self.n_deaths += 1
            self._die()

    def compute(self) -> None:
        """A step without anybody new."""
        bench = self._bench
        bench.queues.policy.take_late()
        bench.plan()
        passed_s = self._step_s
        if self._chance.random() < self._harm.jump:
            passed_s += self._chance.uniform(0.0, self._harm.jump_s)
        bench.now_s += passed_s
        self.time_s += passed_s
        for advance in bench.apply() if bench.plans else ():
            timeline = advance.row.sequence.timeline
            timeline.first_token_s = timeline.first_token_s or bench.now_s
        for sequence in bench.ended:
            self._arrived_s.pop(sequence.request, None)
        bench.ended.clear()

    def _die(self) -> None:
        """The successor knows nothing, and its clock has another origin."""
        left = [*self._bench.queues.running, *self._bench.queues.waiting]
        self._chance.shuffle(left)  # several gateways submit again
        self._bench = self._new_bench()
        for sequence in left:
            tokens = int32s(sequence.tokens(0))
            submit = Submit(sequence.number, sequence.request, tokens, sequence.n_prompt, Sampling(), sequence.terms)
            age_s = self.time_s - self._arrived_s[sequence.request]
            self._add(msgspec.structs.replace(submit, age_s=age_s, is_again=True))

    def _new_bench(self) -> PlannerBench:
        bench = PlannerBench({"plans_in_flight": 1, **self._settings}, **self._fields)
        bench.now_s = self._chance.uniform(0.0, 1e6)
        return bench

    def _add(self, submit: Submit) -> None:
        self._bench.queues.add(Sequence("gateway/0", submit, submit.attempt))
