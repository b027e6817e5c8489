"""Clients whose conversations return, one after the other, after others have taken their pages on the device."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tests.support.simulation.clients.planned_requests import ClientKind, PlannedRequest

_N_CONVERSATIONS = 4
_PROMPT_TOKENS = (90, 200)  # the smallest device has pages for 256, so one conversation takes those of another
_MOST_NEW = 12
_APART_S = (0.0, 0.35)  # most are alone then
_ALIKE_SHARE = 0.1
_TOGETHER_S = 0.05  # after the one before, with the same prompt: its load is on its way, or it has just ended


def returning(planned_requests: Iterable[PlannedRequest], chance: random.Random) -> Iterator[PlannedRequest]:
    """The same clients with a few long prompts, short answers, and pauses between them. Some come together with the one before
    and ask for the same prompt."""
    prompts: list[list[int]] = []
    at_s, before = 0.0, 0
    for index, planned in enumerate(planned_requests):
        if not prompts:
            n_tokens = [chance.randrange(*_PROMPT_TOKENS) for _ in range(_N_CONVERSATIONS)]
            prompts = [[chance.randrange(1000) % planned.vocabulary for _ in range(n)] for n in n_tokens]
        is_alike = index > 0 and chance.random() < _ALIKE_SHARE
        at_s += chance.uniform(0.0, _TOGETHER_S) if is_alike else chance.uniform(*_APART_S)
        before = before if is_alike else (before + chance.randrange(1, _N_CONVERSATIONS)) % _N_CONVERSATIONS
        yield replace(
            planned,
            prompt=prompts[before],
            max_tokens=1 if chance.random() < 0.5 else min(planned.max_tokens, _MOST_NEW),
            n=1,
            stop_at=-1,
            leaves_after=-1,
            client_kind=ClientKind.IN_PROCESS if chance.random() < 0.5 else planned.client_kind,
            asks_after_s=at_s,
        )
