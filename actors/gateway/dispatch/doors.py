"""May more be accepted now? What this gateway has accepted, what is on its way in, and what is against it. Pure."""

from __future__ import annotations

from actors.gateway.journal.journal import Journal
from actors.gateway.requests.refusals import Refusal, journal_unavailable


class Doors:
    """Counts sequences. `most` may be accepted or on their way in at a time; a single request may always come alone."""

    def __init__(self, journal: Journal, most: int) -> None:
        self._journal, self._most = journal, most
        self.n_active = 0  # accepted, without a visible ending
        self.n_arriving = 0  # still being tokenised
        self.is_draining = False
        self.was_ready = False  # a scheduler has been there

    def check(self, n_sequences: int) -> None:
        """May so many more come in? Raises: Refusal."""
        if self.is_draining:
            raise Refusal("unavailable", "the server is draining", retry_after_s=5.0)
        if not self._journal.is_healthy:
            raise journal_unavailable()
        if not self.was_ready:
            raise Refusal("unavailable", "the server is starting: no scheduler is ready yet", retry_after_s=2.0)
        n_present = self.n_active + self.n_arriving
        if n_present and n_present + n_sequences > self._most:
            detail = f"{n_present} sequences are active, {self._most} is the limit"
            raise Refusal("overloaded", detail, retry_after_s=1.0)

    def arrive(self, n_sequences: int) -> None:
        """They begin to be tokenised. Follow with `arrived`, whatever becomes of them. Raises: Refusal."""
        self.check(n_sequences)
        self.n_arriving += n_sequences

    def arrived(self, n_sequences: int) -> None:
        """They are tokenised or refused."""
        self.n_arriving -= n_sequences
