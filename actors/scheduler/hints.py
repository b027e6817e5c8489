"""What a scheduler tells the cache directory and speculation, and the drafts that it receives. Each of these messages may be
lost: the directory notices a gap in the numbers, and a missing draft costs only speed."""

from __future__ import annotations

from actors.actor import Actor
from actors.pages.page_ledger import PageLedger
from actors.pages.page_updates import PageUpdates
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.drafts import ReceivedDrafts, TailReport
from actors.scheduler.planning.rows.advance import Advance
from actors.scheduler.planning.rows.row import ForcedTokens
from actors.scheduler.sequences.sequence import Sequence
from messages.drafts import Drafts
from messages.errors import MailboxFull
from messages.wire.message import Message

DIRECTORY, SPECULATION = "cache_directory/0", "speculation/0"


class Hints:
    """The hints of one scheduler. `actor` sends them; `gang` has the pages that the directory is told of.

    `tells_directory`: False for a server's only replica, because no gateway has to choose.
    """

    def __init__(self, actor: Actor, gang: GangView, *, tells_directory: bool) -> None:
        self._actor, self._gang, self._tells_directory = actor, gang, tells_directory
        self._page_updates, self._tails = PageUpdates(), TailReport()
        self.drafts = ReceivedDrafts()
        self._is_inventory_due = False

    @property
    def has_speculation(self) -> bool:
        """True if speculation is a living peer."""
        return SPECULATION in self._actor.child.peers

    def peer_up(self, name: str) -> None:
        """A peer is ready: send the directory an inventory, tell a new speculation process about all sequences."""
        if name == DIRECTORY:
            self.want_inventory()
        elif name == SPECULATION:
            self._tails.clear()

    def peer_down(self, name: str) -> None:
        """The drafts of a dead speculation process are dropped."""
        if name == SPECULATION:
            self.drafts.clear()

    def on_drafts(self, message: Drafts) -> None:
        """Keep the drafts of living sequences; the planner uses those that are still in time."""
        self.drafts.receive(message, self._tails.has)

    def advanced(self, advance: Advance) -> None:
        """A sequence that wants drafts has new tokens. Drafts that came from its grammar say nothing about speculation. Where
        no draft is likely, speculation hears of the tokens of a plan with the first of its steps: an answer comes before the
        next plan is sent."""
        row, likely = advance.row, self.drafts.likely
        n_drafts = 0 if isinstance(row.drafts, ForcedTokens) else len(row.drafts)
        n_accepted = advance.n_accepted if n_drafts else 0
        likely.verified(row.sequence, n_drafts, n_accepted)
        if n_drafts or advance.is_first_of_plan or likely.is_likely(row.sequence):
            self._tails.add(row.sequence, n_drafts, n_accepted)

    def ended(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        self.drafts.end(sequence.number)
        self._tails.end(sequence)

    def want_inventory(self) -> None:
        """Publish every page that can be reused with the next changes: after the next plan, for which streams may wait."""
        self._is_inventory_due = True

    def _publish_inventory(self) -> None:
        """Publish every page that can be reused, as a snapshot."""
        self._is_inventory_due = False
        if self._tells_directory and DIRECTORY in self._actor.child.peers:
            ledger, tier = self._gang.ledger if self._gang.is_alive else None, self._gang.tier.contents
            for message in self._page_updates.snapshot(ledger, tier):
                self._send(DIRECTORY, message)

    def send_changes(self) -> None:
        """Send what has changed since the last call: pages to the directory, tails to speculation."""
        if self._is_inventory_due:
            self._publish_inventory()
        if self._gang.ledger is not None:
            self._send_pages(self._gang.ledger)
        tails = self._tails.take()
        if tails is not None and self.has_speculation:
            self._send(SPECULATION, tails)

    def _send_pages(self, ledger: PageLedger) -> None:
        if not self._tells_directory:
            ledger.take_changes()  # else they would pile up
            self._gang.tier.contents.take_changes()
            return
        updates = self._page_updates.changes(ledger, self._gang.tier.contents)
        if DIRECTORY in self._actor.child.peers:
            for message in updates:
                self._send(DIRECTORY, message)

    def _send(self, name: str, message: Message) -> None:
        try:
            self._actor.send(name, message)
        except MailboxFull:
            self._actor.log.warning("an optional message could not be sent", peer=name, kind=type(message).__name__)
