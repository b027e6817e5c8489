"""When one sequence arrived, entered a slot and had its first token, and how many drafts it has verified."""

from __future__ import annotations

from messages.generation.sequences import Work


class Timeline:
    """Times are seconds of the monotonic clock; 0: not yet. A preempted sequence keeps its first times."""

    __slots__ = ("arrived_s", "first_token_s", "n_accepted", "n_drafted", "started_s")

    def __init__(self) -> None:
        self.arrived_s = self.started_s = self.first_token_s = 0.0
        self.n_drafted = self.n_accepted = 0

    def verified(self, n_drafts: int, n_accepted: int) -> None:
        """A step has verified drafts of the sequence."""
        self.n_drafted += n_drafts
        self.n_accepted += n_accepted

    def work(self, now_s: float) -> Work:
        """What the sequence has taken if it ends now. A phase that it has not reached took no time."""
        started_s = self.started_s or now_s
        first_token_s = self.first_token_s or now_s
        return Work(
            queue_s=started_s - self.arrived_s,
            prefill_s=first_token_s - started_s,
            decode_s=now_s - first_token_s,
            n_drafted=self.n_drafted,
            n_accepted=self.n_accepted,
        )
