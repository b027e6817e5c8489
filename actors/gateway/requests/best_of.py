"""Chooses the answers that a client sees when more are generated than it wants: those with the greatest likelihood."""

from __future__ import annotations

import math

import numpy as np

from actors.gateway.requests.request import GrowingSequence, Request


def shown_answers(request: Request) -> list[GrowingSequence]:
    """The sequences of a request that is over in the order in which its client sees them. The best have the greatest mean log
    probability of their tokens; of equal ones the one with the lowest index. A pure function of what the journal holds."""
    spec = request.spec
    if spec.best_of is None:
        return request.sequences
    shown: list[GrowingSequence] = []
    for first in range(0, spec.n_sequences, spec.n):
        ranked = sorted(request.sequences[first : first + spec.n], key=mean_logprob, reverse=True)
        shown += ranked[: spec.best_of.n_shown]
    return shown


def mean_logprob(sequence: GrowingSequence) -> float:
    """The mean log probability of the tokens of a sequence; minus infinity without tokens."""
    chosen = sequence.logprobs.of(0, len(sequence.ids)).chosen
    mean = float(np.mean(chosen, dtype=np.float64)) if len(chosen) else -math.inf
    return mean if not math.isnan(mean) else -math.inf
