"""May a sequence enter at all? Refuses what can never fit, with the numbers; queues the rest. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from messages.generation import Refused, Submit
from messages.steps import PAGE_TOKENS, Capacity


@dataclass(frozen=True)
class Limits:
    """What the gang can hold, as the scheduler uses it."""

    n_pages: int
    n_slots: int
    context: int  # tokens that the model can tell apart
    step_tokens: int
    lease_steps: int
    vocabulary: int

    @classmethod
    def of(cls, capacity: Capacity, step_tokens: int) -> Limits:
        """The gang's limits under a configured token budget (0: the gang's own)."""
        budget = min(step_tokens or capacity.max_step_tokens, capacity.max_step_tokens)
        return cls(
            n_pages=capacity.n_pages,
            n_slots=capacity.n_slots,
            context=capacity.max_length,
            step_tokens=budget,
            lease_steps=capacity.max_lease_steps,
            vocabulary=capacity.vocabulary,
        )

    @property
    def max_length(self) -> int:
        """Tokens of one sequence, prompt and output, by the model's context and by the memory."""
        return min(self.context, self.n_pages * PAGE_TOKENS)


def judge(submit: Submit, limits: Limits | None, n_waiting: int, max_waiting: int) -> Refused | None:
    """None: welcome. Without limits (no gang has reported yet) only the queue's length is judged."""
    if n_waiting >= max_waiting:
        detail = f"queue: expected fewer than {max_waiting} waiting sequences, got {n_waiting}"
        return Refused(attempt=submit.attempt, code="overloaded", detail=detail, retryable=True)
    return unfit(submit.attempt, submit.tokens, limits) if limits is not None else None


def unfit(attempt: int, tokens, limits: Limits) -> Refused | None:
    """Why these tokens can never run on this gang, or None. `tokens`: [n] int32 array."""
    n = len(tokens)
    if n == 0:
        return Refused(attempt=attempt, code="invalid", detail="tokens: expected at least 1, got 0", retryable=False)
    if n >= limits.context:
        detail = f"tokens: expected fewer than {limits.context} (context length), got {n}"
        return Refused(attempt=attempt, code="too_long", detail=detail, retryable=False)
    if n >= limits.max_length:
        detail = f"tokens: expected fewer than {limits.max_length} ({limits.n_pages} pages of memory), got {n}"
        return Refused(attempt=attempt, code="too_large_for_memory", detail=detail, retryable=False)
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= limits.vocabulary:
        detail = f"tokens: expected ids from 0 to {limits.vocabulary - 1}, got {low if low < 0 else high}"
        return Refused(attempt=attempt, code="invalid", detail=detail, retryable=False)
    return None
