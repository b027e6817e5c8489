"""Decides which submissions a scheduler refuses: those that can never fit, and all while its queue is full. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from actors.scheduler.planning.entering.page_budgets import budget_pages
from messages.generation.sequences import Refused, Submit
from messages.generation.terms import Terms
from messages.steps import EngineCapacity


def usable_capacity(capacity: EngineCapacity, step_tokens: int) -> EngineCapacity:
    """The gang's capacity with at most `step_tokens` tokens in a step; 0: the gang's own limit."""
    budget = min(step_tokens or capacity.max_step_tokens, capacity.max_step_tokens)
    return msgspec.structs.replace(capacity, max_step_tokens=budget)


def judge(submit: Submit, capacity: EngineCapacity | None, n_waiting: int, max_waiting: int) -> Refused | None:
    """The refusal of a submission, or None if it is accepted. Without a capacity (no gang has reported yet) only the length of
    the queue is checked."""
    if n_waiting >= max_waiting:
        detail = f"queue: expected fewer than {max_waiting} waiting sequences, got {n_waiting}"
        return Refused(attempt=submit.attempt, code="overloaded", detail=detail, retryable=True)
    if capacity is None:
        return None
    refused = unfit(submit.attempt, submit.tokens, within_budget(capacity, submit.terms))
    if refused is not None and refused.code == "too_large_for_memory" and submit.terms.page_share < 1.0:
        part = f"; the tenant's page_share is {submit.terms.page_share:g} of {capacity.n_pages} pages"
        return msgspec.structs.replace(refused, detail=refused.detail + part)
    return refused


def within_budget(capacity: EngineCapacity, terms: Terms) -> EngineCapacity:
    """What a sequence with these terms may have of a gang's capacity: its caller may be given a part of the pages."""
    if terms.page_share >= 1.0:
        return capacity
    return msgspec.structs.replace(capacity, n_pages=budget_pages(capacity.n_pages, terms.page_share))


def unfit(attempt: int, tokens: np.ndarray, capacity: EngineCapacity) -> Refused | None:
    """The refusal of tokens that can never run on this gang, or None. `tokens`: [n] int32, all known tokens."""
    n = len(tokens)
    if n == 0:
        return Refused(attempt=attempt, code="invalid", detail="tokens: expected at least 1, got 0", retryable=False)
    if n >= capacity.max_length:
        detail = f"the prompt: expected fewer than {capacity.max_length} tokens (context length), got {n}"
        return Refused(attempt=attempt, code="too_long", detail=detail, retryable=False)
    if n >= capacity.max_sequence_tokens:
        most, pages = capacity.max_sequence_tokens, capacity.n_pages
        detail = f"the prompt: expected fewer than {most} tokens ({pages} pages of memory), got {n}"
        return Refused(attempt=attempt, code="too_large_for_memory", detail=detail, retryable=False)
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= capacity.vocabulary:
        detail = f"tokens: expected ids from 0 to {capacity.vocabulary - 1}, got {low if low < 0 else high}"
        return Refused(attempt=attempt, code="invalid", detail=detail, retryable=False)
    return None
