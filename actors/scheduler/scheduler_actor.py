"""The scheduler: mail of gateways and of its gang in, plans and tokens out. The order of business of one turn:

    apply results -> plan until enough is in flight -> tell gateways (one message each) -> tell directory and speculation

It keeps nothing on disk: when it dies, gateways submit again, and the gang starts an empty epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from actors.actor import Actor, Handler
from actors.scheduler.admission import judge, unfit
from actors.scheduler.drafts import ReceivedDrafts, TailReport
from actors.scheduler.gang import Gang
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.outgoing import Outgoing
from actors.scheduler.page_news import PageNews
from actors.scheduler.policy import make_order
from actors.scheduler.probation import Verdict
from actors.scheduler.roster import Roster
from actors.scheduler.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from actors.scheduler.step_tracker import Advance
from messages import cache, drafts, generation, steps
from messages.birth import Birth
from messages.errors import MailboxFull
from messages.generation import Ending
from messages.ids import actor_name, replica_of, role_of
from messages.lifecycle import Peer
from messages.outcomes import EndReason
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message

DIRECTORY, SPECULATION = "cache_directory/0", "speculation/0"


class SchedulerActor(Actor):
    """See the file's header."""

    def __init__(self, birth: Birth, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        self.settings = msgspec.json.decode(birth.settings, type=SchedulerSettings)
        super().__init__(birth, make_mailbox)
        replica = replica_of(birth.name)
        self._ranks = [str(actor_name("worker", replica, rank)) for rank in range(self.settings.tp)]
        self._roster = Roster(make_order(self.settings.order))
        self._gang = Gang(self._roster, self.settings)
        self._outgoing: defaultdict[str, Outgoing] = defaultdict(Outgoing)
        self._drafts, self._tails = ReceivedDrafts(), TailReport()
        self._page_news = PageNews()
        self._next_number = 1
        self._is_draining = False
        self.metrics = SchedulerMetrics(self.registry)

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            generation.Submit: self.on_submit,
            generation.Ack: self.on_ack,
            generation.Cancel: self.on_cancel,
            steps.Capacity: self.on_capacity,
            steps.Result: self.on_result,
            steps.StepFailed: self.on_step_failed,
            cache.InventoryWanted: self.on_inventory_wanted,
            drafts.Drafts: self.on_drafts,
        }

    # -- gateways ----------------------------------------------------------------------------------------------------

    def on_submit(self, delivery: Delivery, submit: generation.Submit) -> None:
        """Take a sequence, or refuse it with the reason. (A draining server is closed at its gateways, not here.)"""
        refusal = judge(submit, self._gang.capacity, len(self._roster.waiting), self.settings.max_waiting)
        if self._roster.find(delivery.sender, int(submit.attempt)) is not None:
            detail = f"attempt: {submit.attempt} is already here"
            refusal = generation.Refused(attempt=submit.attempt, code="conflict", detail=detail, retryable=False)
        if refusal is not None:
            self.send(delivery.sender, refusal)
            return
        self.send(delivery.sender, generation.Taken(attempt=submit.attempt))
        sequence = Sequence(delivery.sender, submit, self._next_number)
        self._next_number += 1
        self._roster.enter(sequence)
        if self._gang.capacity is not None:
            self._fit(sequence, self._gang.capacity)

    def on_ack(self, delivery: Delivery, ack: generation.Ack) -> None:
        """The gateway has recorded tokens: credit to go on."""
        outgoing = self._outgoing[delivery.sender]
        outgoing.acknowledged = max(outgoing.acknowledged, min(int(ack.up_to), outgoing.number))

    def on_cancel(self, delivery: Delivery, cancel: generation.Cancel) -> None:
        """Nobody wants these tokens any more."""
        sequence = self._roster.find(delivery.sender, int(cancel.attempt))
        if sequence is not None:
            self._end(sequence, "cancelled", cancel.why)

    # -- the gang ----------------------------------------------------------------------------------------------------

    def peer_up(self, peer: Peer) -> None:
        if peer.name in self._ranks and all(rank in self.child.peers for rank in self._ranks):
            self._begin_epoch()
        elif peer.name == DIRECTORY:
            self.on_inventory_wanted(None, None)
        elif peer.name == SPECULATION:
            self._tails.clear()

    def peer_down(self, name: str, incarnation: int) -> None:
        if name in self._ranks:
            self._lose_rank(name, incarnation)
        elif name == SPECULATION:
            self._drafts.clear()
        elif role_of(name) == "gateway":
            self._outgoing.pop(name, None)
            for sequence in self._roster.of_gateway(name):
                self._release(sequence)

    def on_capacity(self, delivery: Delivery, capacity: steps.Capacity) -> None:
        """The gang is empty and says what it can hold."""
        if capacity.epoch != self._gang.tracker.epoch:
            return
        usable = self._gang.begin(capacity)
        self.on_inventory_wanted(None, None)
        for sequence in list(self._roster.waiting):
            self._fit(sequence, usable)
        self.log.info("gang ready", epoch=capacity.epoch, waiting=len(self._roster.waiting), device=usable.device)

    def on_result(self, delivery: Delivery, result: steps.Result) -> None:
        """One step is done: sequences move on, some end."""
        if result.epoch != self._gang.tracker.epoch:
            return
        self.metrics.steps.inc()
        advances = self._gang.apply(result)
        self.metrics.generated_tokens.inc(sum([len(advance.ids) for advance in advances]))
        is_drafting = self._worthy_drafts() is not None and SPECULATION in self.child.peers
        for advance in advances:
            self._advance(advance, result, is_drafting)

    def on_step_failed(self, delivery: Delivery, failed: steps.StepFailed) -> None:
        """A plan was refused whole: everything starts again in an empty epoch, its suspects under watch."""
        if failed.epoch != self._gang.tracker.epoch:
            return
        self.log.error("step failed", step=failed.step, reason=failed.reason, suspects=failed.suspects.tolist())
        self.metrics.recomputed.inc(len(self._roster.running))
        self._end_condemned(self._gang.refuse(failed))
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.mailbox.send_all(self._ranks, self._gang.begin_epoch())

    def _lose_rank(self, name: str, incarnation: int) -> None:
        cause, n_running = self.child.deaths[name].cause, len(self._roster.running)
        self.log.warning("rank lost", rank=name, rank_incarnation=incarnation, cause=cause, running=n_running)
        self.metrics.recomputed.inc(n_running)  # 0 from the second rank on
        is_last = not any(rank in self.child.peers for rank in self._ranks)
        self._end_condemned(self._gang.rank_died(cause, is_last))

    def _end_condemned(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            self.log.error("sequence condemned", attempt=verdict.sequence.attempt, reason=verdict.reason, detail=verdict.detail)
            self._end(verdict.sequence, verdict.reason, verdict.detail)
        if self._gang.probation.is_active:
            self.log.warning("probation", sequences=len(self._gang.probation), waiting=len(self._roster.waiting))

    # -- one turn ----------------------------------------------------------------------------------------------------

    def after_mail(self) -> None:
        self._plan_ahead()
        for gateway, outgoing in self._outgoing.items():
            message = outgoing.take()
            if message is not None and gateway in self.child.peers:
                self.send(gateway, message)
        self._tell_directory()
        self._tell_speculation()
        self._gang.audit()
        if self._is_draining and not len(self._roster):
            self._is_draining = False
            self.child.drained()

    def _plan_ahead(self) -> None:
        limit = self.settings.unacked_messages
        paused = {name for name, outgoing in self._outgoing.items() if outgoing.unacknowledged >= limit}
        while (planned := self._gang.plan(lambda s: s.gateway not in paused, self._worthy_drafts())) is not None:
            self.mailbox.send_all(self._ranks, planned.plan)
            self.metrics.count_plan(planned)

    def _worthy_drafts(self) -> ReceivedDrafts | None:
        """None when so many sequences run that drafts cost more than they give."""
        is_few = len(self._roster.running) <= self.settings.draft_rows
        return self._drafts if self.settings.speculation and is_few else None

    # -- endings -------------------------------------------------------------------------------------------------------

    def _advance(self, advance: Advance, result: steps.Result, is_drafting: bool) -> None:
        sequence = advance.row.sequence
        self._outgoing[sequence.gateway].add(advance, result)
        n_drafts = len(advance.row.drafts)
        if n_drafts:
            self.metrics.drafted_tokens.inc(n_drafts)
            self.metrics.accepted_tokens.inc(len(advance.ids) - 1)
        if advance.ending is not None:
            self._end(sequence, advance.ending)
        elif is_drafting and sequence.wants_drafts:
            self._tails.add(sequence, n_drafts, len(advance.ids) - 1 if n_drafts else 0)

    def _fit(self, sequence: Sequence, capacity: steps.EngineCapacity) -> None:
        """End at once what turns out to be impossible or already complete; cap the length by the context."""
        sequence.max_tokens = min(sequence.max_tokens, capacity.max_sequence_tokens - sequence.n_prompt)
        refusal = unfit(sequence.attempt, sequence.tokens(), capacity)
        if sequence.n_generated and sequence.n_generated >= sequence.max_tokens:
            self._end(sequence, "length")
        elif refusal is not None:
            self.send(sequence.gateway, refusal)
            self._release(sequence)

    def _end(self, sequence: Sequence, reason: EndReason, detail: str = "") -> None:
        ending = Ending(
            attempt=sequence.attempt, reason=reason, n_cached=min(sequence.n_cached, sequence.n_prompt), detail=detail
        )
        self._outgoing[sequence.gateway].end(sequence, ending)
        self.metrics.endings.labels(reason=reason).inc()
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._gang.release(sequence)
        self._drafts.drop(sequence.number)
        self._tails.end(sequence)

    # -- hints: directory and speculation --------------------------------------------------------------------------------

    def on_drafts(self, delivery: Delivery, message: drafts.Drafts) -> None:
        """Keep what may still be in time."""
        self._drafts.receive(message)

    def on_inventory_wanted(self, delivery: Delivery | None, message: cache.InventoryWanted | None) -> None:
        """Publish every page that can be reused, as a snapshot."""
        if DIRECTORY not in self.child.peers:
            return
        self._hint(DIRECTORY, self._page_news.snapshot(self._gang.ledger))

    def _tell_directory(self) -> None:
        if self._gang.ledger is None:
            return
        news = self._page_news.changes(self._gang.ledger)
        if DIRECTORY in self.child.peers:
            for message in news:
                self._hint(DIRECTORY, message)

    def _tell_speculation(self) -> None:
        tails = self._tails.take()
        if tails is not None and SPECULATION in self.child.peers:
            self._hint(SPECULATION, tails)

    def _hint(self, name: str, message: Message) -> None:
        """Say something that may be lost: the number tells the directory of a gap, a draft not made costs nothing."""
        try:
            self.send(name, message)
        except MailboxFull:
            self.log.warning("hint dropped", peer=name, kind=type(message).__name__)

    # -- the turns of life -------------------------------------------------------------------------------------------------

    def drain(self, deadline_s: float) -> None:
        self._is_draining = True

    def progress(self) -> tuple[int, float]:
        return self._gang.tracker.n_done, 0.0

    def statistics(self) -> dict[str, float]:
        self.metrics.waiting.set(len(self._roster.waiting))
        self.metrics.running.set(len(self._roster.running))
        self.metrics.on_probation.set(len(self._gang.probation))
        numbers = {
            "waiting": float(len(self._roster.waiting)),
            "running": float(len(self._roster.running)),
            "steps": float(self._gang.tracker.n_done),
            "epoch": float(self._gang.tracker.epoch),
            "on_probation": float(len(self._gang.probation)),
        }
        if self._gang.ledger is not None:
            pages = self._gang.ledger.statistics()
            self.metrics.show_pages(pages)
            numbers |= {"pages": float(pages.pages), "pages_held": float(pages.held), "pages_cached": float(pages.cached)}
        return numbers


async def run(birth: Birth) -> int:
    """The process of one scheduler."""
    return await SchedulerActor(birth).run()
