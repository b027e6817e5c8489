"""The scheduler: mail of gateways and of its gang in, plans and tokens out. The order of business of one turn:

    apply results -> plan until enough is in flight -> tell gateways (one message each) -> tell directory and speculation

It keeps nothing on disk: when it dies, gateways submit again, and the gang starts an empty epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from actors.actor import Actor, Handler
from actors.pages.page_ledger import PageLedger
from actors.scheduler.admission import Limits, judge, unfit
from actors.scheduler.batch_planner import BatchPlanner, PlannedStep
from actors.scheduler.draft_box import DraftBox
from actors.scheduler.draft_feed import DraftFeed
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.outgoing import Outgoing
from actors.scheduler.roster import Roster
from actors.scheduler.sequence import Sequence, State
from actors.scheduler.settings import SchedulerSettings
from actors.scheduler.step_tracker import Advance, StepTracker
from messages import cache, drafts, generation, steps
from messages.arrays import uint64s
from messages.birth import Birth
from messages.faults import MailboxFull
from messages.generation import Ending
from messages.ids import actor_name, replica_of, role_of
from messages.lifecycle import Peer
from messages.mailbox import Delivery, MailboxFactory
from messages.message import Message
from messages.zmq_mailbox import ZmqMailbox

DIRECTORY, SPECULATION = "cache_directory/0", "speculation/0"
_MAX_FAILED_PLANS = 3


class SchedulerActor(Actor):
    """See the file's header."""

    def __init__(self, birth: Birth, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        self.settings = msgspec.json.decode(birth.settings, type=SchedulerSettings)
        super().__init__(birth, make_mailbox)
        replica = replica_of(birth.name)
        self._ranks = [str(actor_name("worker", replica, rank)) for rank in range(self.settings.tp)]
        self._roster, self._tracker = Roster(), StepTracker()
        self._limits: Limits | None = None
        self._ledger: PageLedger | None = None
        self._planner: BatchPlanner | None = None
        self._outgoing: defaultdict[str, Outgoing] = defaultdict(Outgoing)
        self._drafts, self._feed = DraftBox(), DraftFeed()
        self._page_news = 0
        self._next_number = 1
        self._failed_plans = 0
        self._is_draining = self._is_dirty = False
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
        refusal = judge(submit, self._limits, len(self._roster.waiting), self.settings.max_waiting)
        if self._roster.find(delivery.sender, int(submit.attempt)) is not None:
            detail = f"attempt: {submit.attempt} is already here"
            refusal = generation.Refused(attempt=submit.attempt, code="duplicate", detail=detail, retryable=False)
        if refusal is not None:
            self.send(delivery.sender, refusal)
            return
        self.send(delivery.sender, generation.Taken(attempt=submit.attempt))
        sequence = Sequence(delivery.sender, submit, self._next_number)
        self._next_number += 1
        self._roster.enter(sequence)
        if self._limits is not None:
            self._fit(sequence, self._limits)

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
            self._feed.forget()

    def peer_down(self, name: str, incarnation: int) -> None:
        if name in self._ranks:
            self.log.warning("gang lost", rank=name, rank_incarnation=incarnation, running=len(self._roster.running))
            self._lose_gang()
        elif name == SPECULATION:
            self._drafts.clear()
        elif role_of(name) == "gateway":
            self._outgoing.pop(name, None)
            for sequence in self._roster.of_gateway(name):
                self._release(sequence)

    def on_capacity(self, delivery: Delivery, capacity: steps.Capacity) -> None:
        """The gang is empty and says what it can hold."""
        if capacity.epoch != self._tracker.epoch:
            return
        self._limits = Limits.of(capacity, self.settings.step_tokens)
        self._ledger = PageLedger(self._limits.n_pages)
        self._planner = BatchPlanner(
            self._roster, self._ledger, self._limits, self.settings.prefix_reuse, self.settings.draft_depth
        )
        self._roster.set_slots(self._limits.n_slots)
        self.on_inventory_wanted(None, None)
        for sequence in list(self._roster.waiting):
            self._fit(sequence, self._limits)
        self.log.info("gang ready", epoch=self._tracker.epoch, waiting=len(self._roster.waiting), device=capacity.device)

    def on_result(self, delivery: Delivery, result: steps.Result) -> None:
        """One step is done: sequences move on, some end."""
        if result.epoch != self._tracker.epoch:
            return
        self._failed_plans = 0
        self.metrics.steps.inc()
        advances = self._tracker.apply(result)
        self.metrics.generated_tokens.inc(sum(len(advance.ids) for advance in advances))
        for advance in advances:
            self._advance(advance, result)

    def on_step_failed(self, delivery: Delivery, failed: steps.StepFailed) -> None:
        """A plan was refused whole: end its suspects, start everything else again in an empty epoch."""
        if failed.epoch != self._tracker.epoch:
            return
        self._failed_plans += 1
        self.log.error("step failed", step=failed.step, reason=failed.reason, suspects=failed.suspects.tolist())
        suspects = set(failed.suspects.tolist())
        is_hopeless = self._failed_plans >= _MAX_FAILED_PLANS
        for sequence in [s for s in self._roster.running if is_hopeless or s.slot in suspects]:
            self._end(sequence, "failed", failed.reason[:1000])
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._lose_gang()
        reset = steps.Reset(epoch=self._tracker.begin_epoch())
        self.mailbox.send_all(self._ranks, reset)

    def _lose_gang(self) -> None:
        """Whatever the gang held is gone; running sequences wait and are computed again."""
        self._tracker.begin_epoch()
        self.metrics.recomputed.inc(len(self._roster.running))
        for sequence in list(self._roster.running):
            self._roster.preempt(sequence)
        self._ledger = self._planner = None

    # -- one turn ----------------------------------------------------------------------------------------------------

    def after_mail(self) -> None:
        if self._planner is not None:
            self._plan_ahead(self._planner)
        for gateway, outgoing in self._outgoing.items():
            message = outgoing.take()
            if message is not None and gateway in self.child.peers:
                self.send(gateway, message)
        self._tell_directory()
        self._tell_speculation()
        if self._planner is not None and not self._tracker.plans_in_flight and self._is_dirty:
            self._audit()
        if self._is_draining and not len(self._roster):
            self._is_draining = False
            self.child.drained()

    def _plan_ahead(self, planner: BatchPlanner) -> None:
        while self._tracker.plans_in_flight < self.settings.plans_in_flight:
            is_worth_drafts = self.settings.speculation and len(self._roster.running) <= self.settings.draft_rows
            planned = planner.plan(
                self._tracker.epoch, self._tracker.next_step, self._has_credit, self._drafts if is_worth_drafts else None
            )
            if planned is None:
                return
            self.mailbox.send_all(self._ranks, planned.plan)
            self._tracker.sent(planned)
            self._is_dirty = True
            self._count(planned)

    def _has_credit(self, sequence: Sequence) -> bool:
        return self._outgoing[sequence.gateway].unacknowledged < self.settings.unacked_messages

    def _audit(self) -> None:
        """Idle: the ledger must agree with every holder."""
        assert self._ledger is not None
        self._ledger.check_integrity([s.pages for s in [*self._roster.running, *self._roster.waiting]])
        self._is_dirty = False

    # -- endings -------------------------------------------------------------------------------------------------------

    def _advance(self, advance: Advance, result: steps.Result) -> None:
        sequence = advance.row.sequence
        self._outgoing[sequence.gateway].add(advance, result)
        n_drafts = len(advance.row.drafts)
        if n_drafts:
            self.metrics.drafted_tokens.inc(n_drafts)
            self.metrics.accepted_tokens.inc(len(advance.ids) - 1)
        if advance.ending is not None:
            self._end(sequence, advance.ending)
        elif self._wants_drafts(sequence):
            self._feed.tell(sequence, n_drafts, len(advance.ids) - 1 if n_drafts else 0)

    def _wants_drafts(self, sequence: Sequence) -> bool:
        is_few = len(self._roster.running) <= self.settings.draft_rows
        return self.settings.speculation and sequence.wants_drafts and is_few and SPECULATION in self.child.peers

    def _fit(self, sequence: Sequence, limits: Limits) -> None:
        """End at once what turns out to be impossible or already complete; cap the length by the context."""
        sequence.max_tokens = min(sequence.max_tokens, limits.max_length - sequence.n_prompt)
        refusal = unfit(sequence.attempt, sequence.tokens(), limits)
        if sequence.n_generated and sequence.n_generated >= sequence.max_tokens:
            self._end(sequence, "length")
        elif refusal is not None:
            self.send(sequence.gateway, refusal)
            self._release(sequence)

    def _end(self, sequence: Sequence, reason: generation.Reason, detail: str = "") -> None:
        ending = Ending(
            attempt=sequence.attempt, reason=reason, n_cached=min(sequence.n_cached, sequence.n_prompt), detail=detail
        )
        self._outgoing[sequence.gateway].end(ending)
        self.metrics.endings.labels(reason=reason).inc()
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        if sequence.state is State.RUNNING and self._planner is not None:
            self._planner.seal_known(sequence, is_in_the_making=False)
        pages = self._roster.finish(sequence)
        if self._ledger is not None:
            self._ledger.release(pages)
        self._drafts.drop(sequence.number)
        self._feed.end(sequence)

    # -- hints: directory and speculation --------------------------------------------------------------------------------

    def on_drafts(self, delivery: Delivery, message: drafts.Drafts) -> None:
        """Keep what may still be in time."""
        at, ids = 0, message.ids.tolist()
        rows = zip(message.sequences.tolist(), message.starts.tolist(), message.counts.tolist(), strict=True)
        for number, start, count in rows:
            self._drafts.put(number, start, ids[at : at + count])
            at += count

    def on_inventory_wanted(self, delivery: Delivery | None, message: cache.InventoryWanted | None) -> None:
        """Publish every page that can be reused, as a snapshot."""
        if DIRECTORY not in self.child.peers:
            return
        hashes = self._ledger.inventory() if self._ledger is not None else []
        if self._ledger is not None:
            self._ledger.take_news()
        self._hint(DIRECTORY, cache.PagesSealed(number=self._count_news(), hashes=uint64s(hashes), snapshot=True))

    def _tell_directory(self) -> None:
        if self._ledger is None:
            return
        sealed, dropped = self._ledger.take_news()
        if DIRECTORY not in self.child.peers:
            return
        if dropped:
            self._hint(DIRECTORY, cache.PagesDropped(number=self._count_news(), hashes=uint64s(dropped)))
        if sealed:
            self._hint(DIRECTORY, cache.PagesSealed(number=self._count_news(), hashes=uint64s(sealed)))

    def _tell_speculation(self) -> None:
        tails = self._feed.take()
        if tails is not None and SPECULATION in self.child.peers:
            self._hint(SPECULATION, tails)

    def _hint(self, name: str, message: Message) -> None:
        """Say something that may be lost: the number tells the directory of a gap, a draft not made costs nothing."""
        try:
            self.send(name, message)
        except MailboxFull:
            self.log.warning("hint dropped", peer=name, kind=type(message).__name__)

    def _count_news(self) -> int:
        self._page_news += 1
        return self._page_news

    # -- the turns of life -------------------------------------------------------------------------------------------------

    def drain(self, deadline_s: float) -> None:
        self._is_draining = True

    def progress(self) -> tuple[int, float]:
        return self._tracker.n_done, 0.0

    def statistics(self) -> dict[str, float]:
        self.metrics.waiting.set(len(self._roster.waiting))
        self.metrics.running.set(len(self._roster.running))
        numbers = {
            "waiting": float(len(self._roster.waiting)),
            "running": float(len(self._roster.running)),
            "steps": float(self._tracker.n_done),
            "epoch": float(self._tracker.epoch),
        }
        if self._ledger is not None:
            pages = self._ledger.statistics()
            self.metrics.free_pages.set(pages.free)
            self.metrics.cached_pages.set(pages.cached)
            self.metrics.held_pages.set(pages.held)
            numbers |= {"pages": float(pages.pages), "pages_held": float(pages.held), "pages_cached": float(pages.cached)}
        return numbers

    def _count(self, planned: PlannedStep) -> None:
        m = self.metrics
        m.plans.inc()
        m.batch_rows.observe(len(planned.plan.row_slots))
        m.computed_tokens.inc(planned.n_tokens)
        m.cached_tokens.inc(planned.n_cached)
        m.preemptions.inc(planned.n_preempted)
        m.prompt_tokens.inc(sum(new.n_prompt for new in planned.plan.new))


async def run(birth: Birth) -> int:
    """The process of one scheduler."""
    return await SchedulerActor(birth).run()
