"""Runs of the same sequences alone, crowded and continued, with every bit that a client could see; plain functions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_workers.engine import Engine
from messages.generation.sampling import Sampling
from messages.steps import Result
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler

Outcome = list[tuple[int, bytes]]  # of each token its id, and the bits of its log probabilities
SAMPLINGS = (
    Sampling(temperature=0.0, logprobs=4),
    Sampling(temperature=1.0, seed=11, logprobs=3),
    Sampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01, seed=12, logprobs=0),
    Sampling(temperature=0.7, seed=5, repetition_penalty=1.3, presence_penalty=0.5, logprobs=2),
)


@dataclass(frozen=True)
class Case:
    """One sequence: its prompt and how it is sampled."""

    prompt: list[int]
    sampling: Sampling


def make_cases(lengths: Sequence[int], vocabulary: int, seed: int = 0) -> list[Case]:
    """Random prompts of these lengths, with every kind of sampling in turn."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(vocabulary) for _ in range(n)] for n in lengths]
    return [Case(prompt, SAMPLINGS[i % len(SAMPLINGS)]) for i, prompt in enumerate(prompts)]


def run_alone(engine: Engine, case: Case, n: int) -> Outcome:
    """Its first n tokens with the engine for itself: the prompt in one chunk, then token by token."""
    scheduler, outcomes = SmallScheduler(engine), _Outcomes()
    s = scheduler.add(case.prompt, case.sampling)
    outcomes.read(scheduler.run([Row(s, len(case.prompt))]))
    for _ in range(n - 1):
        outcomes.read(scheduler.run([Row(s)]))
    return outcomes.of(s)


def run_crowded(engine: Engine, cases: Sequence[Case], expected: Sequence[Outcome], n: int, seed: int) -> list[Outcome]:
    """The first n tokens of all cases together: prompts in random chunks, rows in random order, right and wrong drafts, some
    rows left out of a step. expected: what each gives alone, from which drafts are taken."""
    rng, scheduler, outcomes = random.Random(seed), SmallScheduler(engine, seed=seed), _Outcomes()
    running = [scheduler.add(case.prompt, case.sampling) for case in cases]
    while any(len(outcomes.of(s)) < n for s in running):
        rows = []
        for s, alone in zip(running, expected, strict=True):
            done = len(outcomes.of(s))
            if done >= n or rng.random() < 0.1:
                continue
            if s.n_computed < len(s.tokens) - 1:
                rows.append(Row(s, rng.randint(1, len(s.tokens) - s.n_computed)))
            elif rng.random() < 0.2:
                rows.append(Row(s, drafts=[*(token for token, _ in alone[done : done + rng.randint(0, 3)]), 1]))
            else:
                rows.append(Row(s))
        rng.shuffle(rows)
        if rows:
            outcomes.read(scheduler.run(rows))
    return [outcomes.of(s)[:n] for s in running]


def run_continued(engine: Engine, case: Case, known: Outcome, n: int, seed: int) -> Outcome:
    """Its tokens after the known ones up to the nth, as after a death: what was decoded before is part of one chunk now."""
    scheduler, outcomes = SmallScheduler(engine, seed=seed), _Outcomes()
    s = scheduler.add([*case.prompt, *(token for token, _ in known)], case.sampling)
    s.n_prompt = len(case.prompt)
    outcomes.read(scheduler.run([Row(s, len(s.tokens))]))
    for _ in range(n - len(known) - 1):
        outcomes.read(scheduler.run([Row(s)]))
    return outcomes.of(s)


def run_copied(engine: Engine, case: Case, n: int, seed: int) -> Outcome:
    """Its first n tokens beside another sequence of the same prompt, which has computed all of that but the last token: full
    pages are shared, and a partly filled one is copied."""
    scheduler, outcomes = SmallScheduler(engine, seed=seed), _Outcomes()
    first = scheduler.add(case.prompt, Sampling(temperature=1.0, seed=seed))
    outcomes.read(scheduler.run([Row(first, len(case.prompt))]))
    s = scheduler.add(case.prompt, case.sampling, shares=first, n_shared=len(case.prompt) - 1)
    for _ in range(n):
        outcomes.read(scheduler.run([Row(first), Row(s)]))
    return outcomes.of(s)


def differences(engine: Engine, cases: Sequence[Case], n: int, seeds: Sequence[int] = (0, 1)) -> list[str]:
    """What of the runs is not as alone, in words; empty if nothing is."""
    alone = [run_alone(engine, case, n) for case in cases]
    found = []
    for seed in seeds:
        for index, got in enumerate(run_crowded(engine, cases, alone, n, seed)):
            found += _parting(f"case {index} in crowd {seed}", got, alone[index])
    for index, case in enumerate(cases):
        n_known = 1 + (7 * index + 3) % (n - 1)
        got = run_continued(engine, case, alone[index][:n_known], n, seed=index)
        found += _parting(f"case {index} continued after {n_known}", got, alone[index][n_known:])
        found += _parting(f"case {index} copied", run_copied(engine, case, n, seed=index), alone[index])
    return found


def _parting(name: str, got: Outcome, expected: Outcome) -> list[str]:
    if got == expected:
        return []
    at = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected)))
    is_token = at >= len(got) or at >= len(expected) or got[at][0] != expected[at][0]
    return [f"{name}: {'token' if is_token else 'log probability of token'} {at} differs"]


class _Outcomes:
    """What each slot has given so far."""

    def __init__(self) -> None:
        self._by_slot: dict[int, Outcome] = {}

    def of(self, s: Running) -> Outcome:
        """The tokens of one sequence so far."""
        return self._by_slot.get(s.slot, [])

    def read(self, results: Sequence[Result]) -> None:
        """Take the results' tokens, row by row."""
        for result in results:
            first = 0
            for slot, count in zip(result.slots.tolist(), result.counts.tolist(), strict=True):
                for place in range(first, first + count):
                    self._by_slot.setdefault(slot, []).append((int(result.ids[place]), _bits(result, place)))
                first += count


def _bits(result: Result, place: int) -> bytes:
    """The log probabilities of one token and the ids beside them; the width of the arrays depends on what others ask."""
    logprobs = result.logprobs
    if logprobs is None:
        return b""
    part = slice(place * logprobs.width, (place + 1) * logprobs.width)
    is_asked = logprobs.top_ids[part] >= 0
    top, ids = logprobs.top[part][is_asked], logprobs.top_ids[part][is_asked]
    return logprobs.chosen[place : place + 1].tobytes() + top.tobytes() + ids.tobytes()
