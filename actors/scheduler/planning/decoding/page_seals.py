"""Tells the page ledger what the full pages of running sequences hold. Pure."""

from __future__ import annotations

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


class PageSeals:
    """The full pages of one gang's sequences. `is_on`: False where nobody may reuse pages, and nothing is told."""

    def __init__(self, ledger: ForgettingLedger, tier: HostTier, *, is_on: bool) -> None:
        self._ledger, self._tier, self._is_on = ledger, tier, is_on

    def seal_known(self, sequence: Sequence, is_planned: bool) -> None:
        """Tell the ledger the content of every full page of known tokens whose positions are planned. `is_planned`: by the plan
        that is being made; otherwise by an earlier one."""
        if not is_planned:
            self._tier.settle()
        if not self._is_on or self._tier.ahead.keeps_unsealed(sequence):
            return
        complete = min(sequence.planned, sequence.known) // PAGE_TOKENS
        for index in range(sequence.n_sealed, complete):
            before = sequence.pages[index - 1] if index else None
            self._ledger.seal(sequence.pages[index], *sequence.page_content(index), is_planned=is_planned, before=before)
        sequence.n_sealed = max(sequence.n_sealed, complete)
