"""What a sequence that enters a slot need not compute, because pages of the ledger hold its first tokens. Pure."""

from __future__ import annotations

from actors.pages.page_ledger import PageLedger
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


class PrefixSearch:
    """Looks for the first tokens of waiting sequences in one ledger. `is_on` False: nothing is found."""

    def __init__(self, ledger: PageLedger, is_on: bool) -> None:
        self._ledger, self._is_on = ledger, is_on

    def shared_pages(self, sequence: Sequence) -> list[int] | None:
        """Pages of the longest prefix that the ledger can share now; None if it should wait for one step, to share more.

        At least one token is left to compute, because its logits are needed; and every position whose log probabilities are
        wanted and have not come.
        """
        shared: list[int] = []
        if not self._is_on:
            return shared
        for content in sequence.page_contents(min(sequence.known - 1, sequence.n_reusable) // PAGE_TOKENS):
            page = self._ledger.find(*content)
            if page is None:
                return None if self._ledger.is_planned(content[0]) else shared
            shared.append(page)
        return shared

    def take_open(self, sequence: Sequence) -> int:
        """Take the page after its shared ones, if the last scheduler has left it partly filled. Returns its tokens."""
        wanted = sequence.open_content() if self._is_on else None
        if wanted is None or (found := self._ledger.take_open(*wanted)) is None:
            return 0
        sequence.pages.append(found[0])
        return found[1]
