"""What a sequence that enters a slot need not compute, because pages of the ledger hold its first tokens. Pure.

Full pages are shared. Of the page after them the first tokens are copied, so that the sequence can write after them: they are
the end of a prompt, which one sequence has computed and others want too (`PromptTails`). At least the last token is computed
again, because the next one is sampled from its logits. So equal prompts compute one token each, in a row of its own. Its result
depends on no other sequence, as that of any row that goes on after a kill.
"""

from __future__ import annotations

from typing import NamedTuple

from actors.pages.page_ledger import PageLedger
from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.leaders import Leaders
from actors.scheduler.planning.plan_builder import PageCopy, PlanBuilder
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS

_TOKEN_BYTES = 4
_LEAST_COPIED = 4  # tokens; a copy is no faster than to compute fewer, unless they are all that is left


class KnownPrefix(NamedTuple):
    """Where the first tokens of a sequence are."""

    pages: list[int]  # full ones, in order
    rest: tuple[int, bytes] | None = None  # the hash of the last of them, and the reusable tokens after it
    tail: tuple[int, int] | None = None  # a page that begins with some of these, and with how many
    n_ahead: int = 0  # of the pages, the last ones: they are on their way from the host tier


class PrefixSearch:
    """Looks for the first tokens of waiting sequences in one ledger. `is_on` False: nothing is found."""

    def __init__(self, ledger: PageLedger, is_on: bool, copies_pages: bool, tier: HostTier) -> None:
        """copies_pages: the gang can copy pages."""
        self._tier = tier
        self._ledger, self._is_on, self._copies_pages = ledger, is_on, is_on and copies_pages

    def find(self, sequence: Sequence, leaders: Leaders) -> KnownPrefix | None:
        """The longest prefix that the ledger can share now; None if it should wait, to share more. leaders: of the plan that is
        being made.

        At least one token is left to compute, because its logits are needed; and every position whose log probabilities are
        wanted and have not come.
        """
        pages: list[int] = []
        if not self._is_on:
            return KnownPrefix(pages)
        if leaders.still_follows(sequence):
            return None
        n_pages = min(sequence.known - 1, sequence.n_reusable) // PAGE_TOKENS
        for content in sequence.page_contents(n_pages):
            page = self._ledger.find(*content)
            if page is None:
                if leaders.follow(sequence, content[0]) or self._ledger.is_planned(content[0]):
                    return None
                break
            pages.append(page)
        n_found = len(pages)
        if n_found < n_pages:
            pages += self._tier.ahead.pages_for(sequence, pages)
            if n_found == len(pages) and self._tier.must_wait(sequence, pages, n_pages):
                return None
        rest = sequence.open_content(len(pages))
        tail = self._ledger.tails.find(*rest) if rest is not None and self._copies_pages else None
        is_whole = rest is None or (tail is not None and tail[1] * _TOKEN_BYTES == len(rest[1]))
        if not is_whole and self._is_last_planned(sequence, len(pages), leaders):
            return None
        return KnownPrefix(pages, rest, tail, len(pages) - n_found)

    def _is_last_planned(self, sequence: Sequence, index: int, leaders: Leaders) -> bool:
        """True if the page at this index is the last one of the sequence, and the plan that is being made goes on with it, so
        that a later plan can copy it."""
        if not self._copies_pages or index < (sequence.known - 1) // PAGE_TOKENS:
            return False
        is_planned = self._ledger.tails.is_planned(*sequence.known_part(index))
        return is_planned or leaders.follow(sequence, sequence.known_hash(index))

    def entered(self, sequence: Sequence, found: KnownPrefix) -> None:
        """A sequence has entered a slot with this prefix."""
        self._ledger.count_hits(found.pages[: len(found.pages) - found.n_ahead])
        if found.n_ahead:
            self._tier.ahead.enter(sequence)

    def take_open(self, sequence: Sequence, found: KnownPrefix) -> int:
        """Take the page after its shared ones, if the last scheduler has left it partly filled. Returns its tokens."""
        if found.rest is None or (taken := self._ledger.take_open(*found.rest)) is None:
            return 0
        sequence.pages.append(taken[0])
        return taken[1]

    def hold_tail(self, found: KnownPrefix) -> tuple[int, int] | None:
        """The page to copy for the one after the shared ones, which is held until the plan is sent, and how many tokens of it.
        None if there is none. The ledger must have an available page beside those that the sequence takes."""
        if found.rest is None or found.tail is None:
            return None
        page, n_tokens = found.tail
        if n_tokens < _LEAST_COPIED and n_tokens * _TOKEN_BYTES < len(found.rest[1]):
            return None
        self._ledger.hold_copied(page)
        return found.tail

    def add_copy(self, builder: PlanBuilder, sequence: Sequence, tail: tuple[int, int]) -> None:
        """Plan the copy of a tail to the page after the shared ones of a sequence that is in its slot."""
        source, n_tokens = tail
        builder.copies.append(PageCopy(sequence, sequence.stay, source, sequence.pages[sequence.n_shared], n_tokens))

    def chunk_planned(self, leaders: Leaders, sequence: Sequence, start: int) -> None:
        """A prompt has a row, or a longer one, from position `start` on: others may follow it; once all of it is planned, they
        can copy its last page."""
        if not self._is_on or self._tier.ahead.has(sequence):
            return
        leaders.add(sequence, start)
        if sequence.planned >= sequence.known and self._copies_pages:
            index = (sequence.known - 1) // PAGE_TOKENS
            self._ledger.tails.add(sequence.pages[index], *sequence.known_part(index))
