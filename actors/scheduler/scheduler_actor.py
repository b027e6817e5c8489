"""The scheduler: receives mail from gateways and from its gang, sends plans and tokens. After each batch of mail:

    send tokens (one message a gateway) -> plan until enough is in flight -> catch up -> update directory and speculation

A gang that waits gets its plan first. Nothing is on disk: after a death gateways submit again, and a new epoch begins."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from actors.actor import Actor, Handler
from actors.scheduler.admission import judge
from actors.scheduler.cache_resets import CacheResets
from actors.scheduler.condition_reports import ConditionReports
from actors.scheduler.endings import Endings
from actors.scheduler.gang.gang_seats import GangSeats
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.gang.grammar_gate import GrammarGate
from actors.scheduler.gang.held_results import HeldResults
from actors.scheduler.gang.idleness import Idleness
from actors.scheduler.gang.outages import Outages
from actors.scheduler.gang.seal_store import SealStore
from actors.scheduler.hints import Hints
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.new_tokens import NewTokens
from actors.scheduler.outgoing import Outgoing, add_prompts, send_taken, without_credit
from actors.scheduler.plan_timer import PlanTimer
from actors.scheduler.planning.drafts import ReceivedDrafts
from actors.scheduler.policies.choice import make_queues
from actors.scheduler.sequences.permission import Permission
from actors.scheduler.sequences.sequence import Sequence
from actors.scheduler.settings import SchedulerSettings
from actors.scheduler.tier_moves import TierMoves, handlers
from actors.scheduler.trace_recorder import TraceRecorder
from messages import drafts, steps
from messages.caches import prefixes
from messages.generation.recall import Recall
from messages.generation.replica_state import ReplicaCondition
from messages.generation.sequences import Ack, Cancel, Submit, Taken
from messages.ids import replica_of, role_of
from messages.lifecycle.lifecycle import Cause, Peer, RankEnding
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message

_MOST_LOGGED = 16  # requests in a line
_SICK_PAUSE_S = 1.0  # before a gang that has refused the canary is asked again


class SchedulerActor(Actor):
    """One scheduler: an actor around `SequenceQueues` and `GangView`, which decide."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        self.settings = msgspec.json.decode(spawn_spec.settings, type=SchedulerSettings)
        super().__init__(spawn_spec, make_mailbox)
        replica = replica_of(spawn_spec.name)
        self._seats, self.metrics = GangSeats(replica, self.settings.tp), SchedulerMetrics(self.registry)
        self._queues = make_queues(self.settings, lambda: time.monotonic())
        self._seals = SealStore(Path(spawn_spec.run_dir), replica, self.settings.vault)
        self._gang = GangView(self._queues, self.settings, self._seals.tables)
        self._outgoing: defaultdict[str, Outgoing] = defaultdict(Outgoing)
        self._hints = Hints(self, self._gang, tells_directory=self.settings.tells_directory)
        self._reports = ConditionReports(self, self._gang, self._queues, self.metrics, self.settings)
        self._outages = Outages(self)
        self._results = HeldResults(self._gang.tracker, self._gang.tier.ahead, self._apply)
        self._resets, self._moves = CacheResets(self, self._gang), TierMoves(self, self._gang, self._seats, self._results.go_on)
        self._recorder = TraceRecorder(self, self.settings.trace_dir, f"scheduler-{replica}.{spawn_spec.incarnation}.jsonl")
        self._endings = Endings(self, self._queues, self._gang, self._outgoing, self._hints, self.metrics, self._recorder)
        self._next_number, self._is_draining = 1, False
        self._timer = PlanTimer(self, lambda: self._plan_ahead())
        self._new_tokens = NewTokens(self._outgoing, self._endings, self._hints, self._timer, self.metrics)
        self._idleness, self._grammars = Idleness(), GrammarGate(lambda: time.monotonic())

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            Submit: self.on_submit,
            Ack: self.on_ack,
            Cancel: lambda delivery, message: self._endings.on_cancel(delivery, message),
            Recall: lambda delivery, message: self._endings.on_recall(delivery, message),
            steps.Capacity: self.on_capacity,
            steps.Result: lambda delivery, message: self._results.come(message),
            steps.StepFailed: self.on_step_failed,
            steps.Idle: self.on_idle,
            steps.GrammarPrepared: lambda delivery, message: self._grammars.prepared(delivery.sender, message),
            **handlers(lambda: self._moves),
            prefixes.InventoryWanted: lambda delivery, message: self._hints.want_inventory(),
            prefixes.ForgetPages: lambda delivery, message: self._resets.on_forget(delivery, message),
            drafts.Drafts: lambda delivery, message: self._hints.on_drafts(message),
            RankEnding: self.on_rank_ending,
        }

    # -- gateways ----------------------------------------------------------------------------------------------------

    def on_submit(self, delivery: Delivery, submit: Submit) -> None:
        """Accept a sequence, or refuse it with the reason. During a drain the gateways refuse, the scheduler does not."""
        self._outgoing[delivery.sender].note_attempt(int(submit.attempt))
        if self._queues.find(delivery.sender, int(submit.attempt)) is not None:  # the gateway has missed the first Taken
            self.send(delivery.sender, Taken(attempt=submit.attempt))
            return
        if (refusal := judge(submit, self._gang.capacity, len(self._queues.waiting), self.settings.max_waiting)) is not None:
            self.send(delivery.sender, refusal)
            return
        self.send(delivery.sender, Taken(attempt=submit.attempt))
        sequence = Sequence(delivery.sender, submit, self._next_number)
        self._next_number += 1
        self._gang.arrived(sequence, submit.suspicion)
        if self._gang.capacity is not None:
            self._endings.fit_to(sequence, self._gang.capacity)
        if self._gang.is_alive:
            self._grammars.is_open(sequence)  # compiled while the steps in flight run

    def on_ack(self, delivery: Delivery, ack: Ack) -> None:
        """The gateway has recorded tokens, which gives its sequences credit."""
        self._outgoing[delivery.sender].acknowledge(int(ack.up_to))

    # -- the gang ----------------------------------------------------------------------------------------------------

    def peer_up(self, peer: Peer) -> None:
        if self._seats.rank_up(peer.name, self.child.peers):
            self._begin_epoch()
        elif peer.name == self._seals.vault:
            self._seals.give_again()
        elif role_of(peer.name) == "gateway":
            self._reports.greet(peer.name)
        self._hints.peer_up(peer.name)

    def peer_down(self, name: str, incarnation: int) -> None:
        if name in self._seats.ranks:
            self._lose_rank(name, incarnation, self.child.deaths[name].cause)
        elif role_of(name) == "gateway":
            self._outgoing.pop(name, None)
            for sequence in self._queues.of_gateway(name):
                self._endings.release(sequence)
        self._hints.peer_down(name)
        self._moves.peer_down(name)

    def on_rank_ending(self, delivery: Delivery, ending: RankEnding) -> None:
        """A rank computes nothing more, and no standby is ready: its next incarnation waits for the proof of its death."""
        peer = self.child.peers.get(ending.name)
        if ending.name in self._seats.ranks and peer is not None and peer.incarnation == ending.incarnation:
            self._reports.no_standby_follows()
            self._lose_rank(ending.name, peer.incarnation, ending.cause)

    def on_capacity(self, delivery: Delivery, capacity: steps.Capacity) -> None:
        """The ranks have reset: plans can be sent."""
        if self._gang.is_alive or not self._gang.tracker.is_current(capacity.epoch):
            return
        n_kept = self._gang.n_tail_tokens
        usable = self._gang.begin(capacity)
        self._moves.begin()
        self._resets.carry_out()
        self._hints.want_inventory()
        self._grammars.begin(capacity.epoch, self._seats.ranks if usable.prepares_grammars else ())
        for sequence in [*self._queues.running, *self._queues.waiting]:
            self._endings.fit_to(sequence, usable)
        n_tail_tokens = self._gang.n_tail_tokens - n_kept
        self._outages.ready(capacity.epoch, usable, self._queues, self._gang.ledger, n_tail_tokens)

    def _apply(self, result: steps.Result) -> None:
        """One step is done: sequences move on, some end."""
        self.metrics.steps.inc()
        self._outages.computed()
        advances = self._gang.apply(result)
        add_prompts(self._outgoing, self._gang.tracker.take_prompts())
        is_drafting = self._usable_drafts() is not None and self._hints.has_speculation
        self._new_tokens.told(advances, result, is_drafting)

    def on_step_failed(self, delivery: Delivery, failed: steps.StepFailed) -> None:
        """The gang has refused a plan as a whole: all sequences start again in a new epoch, and some are suspects."""
        if not self._gang.tracker.is_current(failed.epoch):
            return
        requests = self._gang.requests_of(failed)[:_MOST_LOGGED]
        self.log.error("step failed", step=failed.step, reason=failed.reason, requests=requests)
        self.metrics.recomputed.inc(len(self._queues.running))
        self._endings.end_forced(self._gang.refuse(failed))
        if self._gang.condition is ReplicaCondition.SICK:
            asyncio.get_running_loop().call_later(_SICK_PAUSE_S, self._begin_epoch)
        else:
            self._begin_epoch()

    def on_idle(self, delivery: Delivery, idle: steps.Idle) -> None:
        """The gang has nothing to do. If it should have, something is lost: all sequences start again in a new epoch."""
        if delivery.sender in self._seats.ranks and self._idleness.reported(self._gang.awaited, time.monotonic()):
            self.log.error("messages between scheduler and gang were lost", awaited=self._gang.awaited)
            self._gang.abandon_epoch()
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        if not self._gang.is_alive and self._seats.living(self.child.peers) == self._seats.ranks:
            self.mailbox.send_all(self._seats.ranks, self._gang.begin_epoch())
            self._outages.reset()
            self._gang.prepare_memory()

    def _lose_rank(self, name: str, incarnation: int, cause: Cause) -> None:
        if not self._seats.lose(name, incarnation):
            self._gang.note_proof(cause)
            return
        lost = self._queues.running if self._gang.is_alive else ()
        self._outages.lost(name, incarnation, cause, lost)
        self.metrics.recomputed.inc(len(lost))  # 0 when further ranks of the gang die
        self._endings.end_forced(self._gang.rank_died(cause, is_last=not self._seats.living(self.child.peers)))

    def tick(self) -> None:
        if self._gang.is_alive and (overdue := self._grammars.take_overdue()):
            self._endings.end_overdue([*self._queues.running, *self._queues.waiting], overdue)
        self._ask_grammars()
        self._moves.tick()
        n_done, now_s = self._gang.tracker.n_done, self._queues.now_s()
        for gateway in self.child.names_of("gateway"):
            self.send(gateway, self._outgoing[gateway].holding(self._queues.of_gateway(gateway), n_done, now_s))

    def after_mail(self) -> None:
        self._results.go_on()  # loads, on whose outcome some have waited, may have ended
        self._endings.drop_late(self._queues.policy, self.settings.late, self._reports.loads)
        if self._gang.tracker.plans_in_flight or not len(self._queues):  # the gang has work meanwhile, or there is none for it
            send_taken(self._outgoing, self.child.peers, self.send)
        self._plan_ahead()
        self._reports.send_changes()
        send_taken(self._outgoing, self.child.peers, self.send)
        self._moves.catch_up()
        self._hints.send_changes()
        self._gang.audit()
        self._resets.tell()
        if self._is_draining and not len(self._queues):
            self._is_draining = False
            self.child.drained()

    def _plan_ahead(self) -> None:
        may_run = Permission(without_credit(self._outgoing, self.settings.unacked_messages), self._grammars.is_open)
        may_plan = True
        while may_plan:
            while (planned := self._gang.plan(may_run, self._usable_drafts())) is not None:
                self._moves.send(planned)  # before the plan, which may overwrite what they store
                self.mailbox.send_all(self._seats.ranks, planned.plan)
                self.metrics.count_plan(planned)
                self._outages.planned()
            may_plan = self._moves.send(None)
        self._timer.hold(self._gang.hold.take_wait_s())
        self._ask_grammars()

    def _ask_grammars(self) -> None:
        for wanted in self._grammars.take_unsent() if self._gang.is_alive else ():
            self.mailbox.send_all(self._seats.ranks, wanted)

    def _usable_drafts(self) -> ReceivedDrafts | None:
        """The received drafts; None when so many sequences run, or wait, that drafts cost more than they give."""
        most = 0 if self._reports.loads.level else self.settings.draft_rows
        return self._hints.drafts if self.settings.speculation and len(self._queues.running) <= most else None

    # -- life cycle ------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        self._recorder.close()
        await super().stop()

    def drain(self, deadline_s: float) -> None:
        self._is_draining = True

    def progress(self) -> tuple[int, float]:
        return self._gang.tracker.n_done, 0.0

    def statistics(self) -> dict[str, float]:
        return self.metrics.show(self._queues, self._gang)


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of a scheduler; returns the exit status."""
    return await SchedulerActor(spawn_spec).run()
