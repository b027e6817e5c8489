"""Runs every kind of row before a rank is ready, so that kernels are compiled, libraries have chosen their algorithms and
memory has been touched. The times of these steps are the first that its scheduler knows
(`actors/scheduler/planning/step_times.py`)."""

from __future__ import annotations

import time

import msgspec

from gpu_workers.engine import Engine
from messages.generation.examples import example_of
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms
from messages.steps import PAGE_TOKENS, NewSequence, PageCopies, Plan, StepTime
from messages.wire.arrays import int32s, total

_TOKENS = 40  # of each of the two sequences
_FEW_TOKENS = 8  # the same for an engine that compiles nothing, where longer steps would only delay the start
_LONG_TOKENS = 2048  # of a long prompt, for an engine whose steps are short
_SPARE = 4  # positions that the later steps need
_PLAIN = Sampling(temperature=0.0)
_FULL, _FULL_TERMS = example_of(Sampling), example_of(RankTerms)  # every parameter and term is in use


def warm_up(engine: Engine) -> list[StepTime]:
    """Runs a few plans over two slots, then resets the engine. Returns how long each took. All ranks of a gang do the same.

    An engine that works in the background may compile or load what a plan needs, so it runs all plans twice, and the second
    time counts."""
    capacity, is_pipelined = engine.capacity(), engine.max_in_flight > 1
    wanted = _TOKENS if is_pipelined else _FEW_TOKENS
    n = min(wanted, capacity.max_length - _SPARE, capacity.max_step_tokens // 2, capacity.n_pages // 2 * PAGE_TOKENS - _SPARE)
    if n < 2 or capacity.n_slots < 2:
        return []
    plans = _plans(n)
    n_long = min(_LONG_TOKENS, capacity.max_length - _SPARE, capacity.max_step_tokens, capacity.n_pages * PAGE_TOKENS)
    if is_pipelined and n_long > n:
        plans.append(_long_prompt(len(plans), n_long))
    if is_pipelined and capacity.beside_tokens >= n:
        prompt = _long_prompt(len(plans), min(max(n, n_long), capacity.beside_tokens))
        plans.append(msgspec.structs.replace(prompt, is_urgent=True))
    times: list[StepTime] = []
    for _ in range(2 if is_pipelined else 1):
        engine.reset(0)
        times = [_timed(engine, plan) for plan in plans]
    engine.reset(0)
    return times


def _timed(engine: Engine, plan: Plan) -> StepTime:
    began_s = time.monotonic()
    for _ in engine.collect(engine.launch(plan)):
        pass
    return StepTime(
        rows=len(plan.row_slots),
        tokens=total(plan.row_counts),
        context=int((plan.row_starts + plan.row_counts).max()),
        took_s=time.monotonic() - began_s,
    )


def _long_prompt(step: int, n: int) -> Plan:
    held = -(-n // PAGE_TOKENS)
    pages = {"page_slots": [0] * held, "page_indices": range(held), "page_ids": range(held)}
    return _plan(step, [_new(0, n, _PLAIN)], pages, [(0, 0, n)])


def _plans(n: int) -> list[Plan]:
    held = -(-(n + _SPARE) // PAGE_TOKENS)
    both = {"page_slots": [0] * held + [1] * held, "page_indices": [*range(held)] * 2, "page_ids": range(2 * held)}
    copies = PageCopies(sources=int32s([0]), targets=int32s([held]), tokens=int32s([PAGE_TOKENS]))
    again = {"page_slots": [1] * held, "page_indices": range(held), "page_ids": range(held, 2 * held)}
    return [
        _plan(0, [_new(0, n, _PLAIN), _new(1, n, _FULL)], both, [(0, 0, n), (1, 0, n)]),  # two prompts
        _plan(1, [], {}, [(0, n, 1), (1, n, 1)]),  # two tokens, one of them with every sampling option
        _plan(2, [_new(1, n, _PLAIN)], again, [(0, n + 1, 1), (1, 0, n)], copies=copies),  # a token beside a prompt
        _plan(3, [], {}, [(0, n + 2, 2)], drafts=1),
        _plan(4, [], {}, [(1, n, 1)]),  # a step that fits a decode graph
    ]


def _new(slot: int, n: int, sampling: Sampling) -> NewSequence:
    terms = _FULL_TERMS if sampling is _FULL else RankTerms()
    return NewSequence(slot=slot, n_tokens=n, n_prompt=n, sampling=sampling, terms=terms)


def _plan(
    step: int,
    new: list[NewSequence],
    pages: dict[str, object],
    rows: list[tuple[int, int, int]],
    drafts: int = 0,
    copies: PageCopies | None = None,
) -> Plan:
    """rows: (slot, start, count) of each row; all of them sample. drafts: the draft tokens of each row."""
    slots, starts, counts = zip(*rows, strict=True)
    return Plan(
        epoch=0,
        step=step,
        n_steps=1,
        new=new,
        new_tokens=int32s([1] * sum(one.n_tokens for one in new)),
        **{name: int32s(pages.get(name, ())) for name in ("page_slots", "page_indices", "page_ids")},  # pyright: ignore
        row_slots=int32s(slots),
        row_starts=int32s(starts),
        row_counts=int32s(counts),
        row_samples=int32s([1] * len(rows)),
        draft_counts=int32s([drafts] * len(rows) if drafts else ()),
        draft_ids=int32s([1] * drafts),
        copies=copies,
    )
