"""Runs every kind of row once before a rank is ready, so that kernels are compiled, libraries have chosen their algorithms and
memory has been touched."""

from __future__ import annotations

from gpu_workers.engine import Engine
from messages.generation import Sampling, example_sampling
from messages.steps import PAGE_TOKENS, NewSequence, Plan
from messages.wire.arrays import int32s

_TOKENS = 40  # of each of the two sequences
_FEW_TOKENS = 8  # the same for an engine that compiles nothing, where longer steps would only delay the start
_SPARE = 4  # positions that the later steps need
_PLAIN = Sampling(temperature=0.0)
_FULL = example_sampling()  # every parameter is in use


def warm_up(engine: Engine) -> None:
    """Runs a few plans over two slots, then resets the engine. All ranks of a gang do the same."""
    capacity = engine.capacity()
    wanted = _TOKENS if engine.max_in_flight > 1 else _FEW_TOKENS
    n = min(wanted, capacity.max_length - _SPARE, capacity.max_step_tokens // 2, capacity.n_pages // 2 * PAGE_TOKENS - _SPARE)
    if n < 2 or capacity.n_slots < 2:
        return
    engine.reset(0)
    for plan in _plans(n):
        for _ in engine.collect(engine.launch(plan)):
            pass
    engine.reset(0)


def _plans(n: int) -> list[Plan]:
    held = -(-(n + _SPARE) // PAGE_TOKENS)
    both = {"page_slots": [0] * held + [1] * held, "page_indices": [*range(held)] * 2, "page_ids": range(2 * held)}
    again = {"page_slots": [1] * held, "page_indices": range(held), "page_ids": range(held, 2 * held)}
    return [
        _plan(0, [_new(0, n, _PLAIN), _new(1, n, _FULL)], both, [(0, 0, n), (1, 0, n)]),  # two prompts
        _plan(1, [], {}, [(0, n, 1), (1, n, 1)]),  # two tokens, one of them with every sampling option
        _plan(2, [_new(1, n, _PLAIN)], again, [(0, n + 1, 1), (1, 0, n)]),  # a token beside a prompt
        _plan(3, [], {}, [(0, n + 2, 2)], drafts=1),
        _plan(4, [], {}, [(1, n, 1)]),  # a step that fits a decode graph
    ]


def _new(slot: int, n: int, sampling: Sampling) -> NewSequence:
    banned = [0] if sampling is _FULL else []
    return NewSequence(slot=slot, n_tokens=n, n_prompt=n, sampling=sampling, min_tokens=len(banned), banned_tokens=banned)


def _plan(
    step: int, new: list[NewSequence], pages: dict[str, object], rows: list[tuple[int, int, int]], drafts: int = 0
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
    )
