"""Chooses the answers that a client sees when more are generated than it wants: those with the greatest likelihood."""

from __future__ import annotations

import math

import numpy as np

from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import RequestSpec


def shown_answers(request: Request) -> list[GrowingSequence]:
    """The sequences of a request that is over in the order in which its client sees them. The best have the greatest mean log
    probability of their tokens; of equal ones the one with the lowest index. Failures come first: they fail the request. A pure
    function of what the journal holds."""
    spec = request.spec
    if spec.best_of is None:
        return request.sequences
    shown: list[GrowingSequence] = []
    for first in range(0, spec.n_sequences, spec.n):
        ranked = sorted(request.sequences[first : first + spec.n], key=_rank, reverse=True)
        shown += ranked[: spec.best_of.n_shown]
    return shown


def n_shown(spec: RequestSpec) -> int:
    """Number of answers that the client of a request sees."""
    return len(spec.prompts) * (spec.best_of.n_shown if spec.best_of is not None else spec.n)


def n_readable(request: Request) -> list[int]:
    """Tokens of each answer, in the order in which its client sees them, that the client can read now. Of the best of several
    it can read none before all are over, and of a request for its prompts alone none at all."""
    spec = request.spec
    if not spec.has_answer or (spec.best_of is not None and not request.is_over):
        return [0] * n_shown(spec)
    return [sequence.n_visible for sequence in shown_answers(request)]


def _rank(sequence: GrowingSequence) -> tuple[bool, float]:
    is_failure = sequence.ended is not None and sequence.ended.is_failure
    return is_failure, mean_logprob(sequence)


def mean_logprob(sequence: GrowingSequence) -> float:
    """The mean log probability of the tokens of a sequence; minus infinity without tokens."""
    chosen = sequence.logprobs.of(0, len(sequence.ids)).chosen
    mean = float(np.mean(chosen, dtype=np.float64)) if len(chosen) else -math.inf
    return mean if not math.isnan(mean) else -math.inf
