"""Decides whether more sequences may be accepted now, by the state of the server and the number of its sequences. Pure."""

from __future__ import annotations

from actors.gateway.journal.journal import Journal
from actors.gateway.requests.refusals import Refusal, journal_unavailable


class AdmissionGate:
    """Counts sequences. At most `limit` may be active or reserved at a time; a request that is alone is always accepted."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self._journal, self._limit = journal, limit
        self.n_active = 0  # accepted, without a visible ending
        self.n_reserved = 0  # still being tokenised
        self.is_draining = False
        self.was_ready = False  # a scheduler has been connected since this server started
        self.was_other_ready = False  # the same of one of another model than the main one

    def check_state(self) -> None:
        """Return if the server accepts requests now, whatever their number. Raises: Refusal."""
        if self.is_draining:
            raise Refusal("unavailable", "the server is draining", retry_after_s=5.0)
        if not self._journal.is_healthy:
            raise journal_unavailable()
        if not self.was_other_ready:
            self.check_main()

    def scheduler_up(self, model: int) -> None:
        """A scheduler of the model with this number is ready."""
        if model:
            self.was_other_ready = True
        else:
            self.was_ready = True

    def check_main(self) -> None:
        """Return if a scheduler of the main model has been ready. Raises: Refusal."""
        if not self.was_ready:
            raise Refusal("unavailable", "the server is starting: no scheduler is ready yet", retry_after_s=2.0)

    def check(self, n_sequences: int) -> None:
        """Return if `n_sequences` more may be accepted now. Raises: Refusal."""
        self.check_state()
        n_present = self.n_active + self.n_reserved
        if n_present and n_present + n_sequences > self._limit:
            detail = f"{n_present} sequences are active, {self._limit} is the limit"
            raise Refusal("overloaded", detail, retry_after_s=1.0)

    def reserve(self, n_sequences: int) -> None:
        """Count sequences that `check` has passed while they are tokenised. Call `release` afterwards, accepted or not."""
        self.n_reserved += n_sequences

    def release(self, n_sequences: int) -> None:
        """End a reservation made with `reserve`."""
        self.n_reserved -= n_sequences
