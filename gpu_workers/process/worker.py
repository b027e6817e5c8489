"""The process of one rank: a control task for messages and heartbeats, a step thread for the device.

        supervisor / scheduler             control task (this file)              step thread
        ----------------------             ------------------------              -----------
                                           Hello at once             ----->      import, load, warm up
        Loading, Ready           <-----                              <-----      loading, loaded
        Reset                    ----->    epoch                     ----->      forget slots
        Capacity                 <-----    (reporter)                <-----      reset done
        Plan                     ----->    of this epoch only        ----->      launch, collect
        Result, StepFailed       <-----    (reporter)                <-----      results, refusals
        Moves                    ----->    of this epoch only        ----->      move pages
        Moved                    <-----    (each rank)               <-----      moved
        PrepareGrammar           ----->    compiled in a thread, then GrammarPrepared (each rank)
        Progress                 <-----    every beat_s, also while a step runs
        Fault, exit status FAULT <-----                              <-----      any error of the device

It differs from `actors.actor.Actor` because a step must not stop the heartbeats. `Progress` also says how long the present step
has run. A fault is never repaired here, because the state of the device is unknown: the whole gang is restarted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from gpu_workers.engine import Engine
from gpu_workers.process.engine_loading import BuildEngine, build_rank
from gpu_workers.process.gang_agreement import EpochId, GangAgreement, epoch_id
from gpu_workers.process.loading_times import LoadingTimes
from gpu_workers.process.metrics import WorkerMetrics
from gpu_workers.process.rank_disk import disk_of
from gpu_workers.process.rank_memory import memory_of
from gpu_workers.process.step_events import StepEvents
from gpu_workers.process.step_thread import StepThread
from gpu_workers.settings import read_settings
from messages.caches.moves import Moved, Moves
from messages.child import Child, LifecycleEvents
from messages.errors import MailboxFull
from messages.ids import actor_name, replica_of
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.metrics import take_snapshot
from messages.outcomes import ExitCode
from messages.steps import Capacity, EngineCapacity, GrammarPrepared, Idle, Plan, PrepareGrammar, Reset, Result, StepFailed
from messages.transport.link_metrics import LinkMetrics
from messages.transport.mailbox import Delivery, Mailbox, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message

_STOP_S = 0.2  # how long the step thread may take to end; then the process exits anyway
_MAX_EARLY = 20  # Idle messages that a scheduler may get before it has sent a Reset
_MOST_LOGGED = 16  # suspects in a line
_MAX_UNSENT = 4096  # messages for a scheduler that is not announced yet; far more than plans can be in flight


class Worker(LifecycleEvents, StepEvents):
    """The actor of one rank, from Hello to the end of its process."""

    def __init__(self, spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox, build: BuildEngine = build_rank) -> None:
        self.settings = read_settings(spec.settings)
        self.log = structlog.get_logger().bind(actor=spec.name, incarnation=spec.incarnation)
        self.mailbox: Mailbox = make_mailbox(spec.name, spec.incarnation, spec.endpoint)
        self.child = Child(spec, self.mailbox, self)
        self.metrics = WorkerMetrics()
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)
        ProcessCollector(registry=self.registry)
        self.registry.register(LinkMetrics(self.mailbox.statistics))
        self._scheduler = actor_name("scheduler", replica_of(spec.name))
        self._owner = self._epoch = -1  # of the last Reset: the incarnation of its sender, and its epoch
        self._epoch_id = EpochId(-1)  # _owner and _epoch in one number
        self._n_early = 0  # Idle messages before the Reset of the present scheduler
        self._request_by_slot: dict[int, str] = {}  # of this epoch, for log lines
        self._unsent: deque[Message] = deque(maxlen=_MAX_UNSENT)
        self._grammars: set[asyncio.Task[None]] = set()  # that are compiled
        self._loading = LoadingTimes()
        self._capacity: EngineCapacity | None = None
        self._memory_generation = spec.incarnation  # without a vault the KV memory is this process's own, and new with it
        self._ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        gang_dir = Path(spec.gang_dir or spec.run_dir)
        size = self.settings.n_ranks
        self._agreement = GangAgreement(gang_dir, self.settings.rank, size) if size > 1 else None
        self._memory = memory_of(spec, self.settings, gang_dir) if self.settings.vault else None
        kept = self._memory.kept if self._memory is not None else None
        self.registry.register(disk := disk_of(spec, self.settings, self._memory))
        self._steps = StepThread(
            lambda report: build(self.settings, gang_dir, report, kept),
            self,
            self._may_run,
            self._prepare_memory,
            self._distrust_memory,
            self.settings.least_hang_s,
            disk,
            self._memory.exchange if self._memory is not None else None,
        )

    async def run(self) -> int:
        """Run until Stop or a fault; returns the exit status."""
        self.child.hello()
        self._steps.start()
        mail = asyncio.create_task(self._read_mail())
        try:
            status = await self._ending
            is_idle = await asyncio.to_thread(self._steps.stop, _STOP_S)
            if status == ExitCode.DONE:
                self.log.info("stopped", step_left_running=not is_idle)
                self.child.stopped()
            return status
        finally:
            mail.cancel()
            await self.mailbox.close()

    # -- mail -----------------------------------------------------------------------------------------------------

    async def _read_mail(self) -> None:
        try:
            while not self.child.is_stopping:
                for delivery in self.child.filter_lifecycle(await self.mailbox.wait_mail()):
                    self._handle(delivery)
            self._end(ExitCode.DONE)
        except Exception as error:
            self.on_fault("mail", error)

    def _handle(self, delivery: Delivery) -> None:
        message = delivery.message
        if delivery.sender != self._scheduler or not isinstance(message, Reset | Plan | Moves | PrepareGrammar):
            self.metrics.dropped += 1
        elif isinstance(message, Reset):
            self._begin_epoch(delivery.sender_incarnation, message)
        elif (delivery.sender_incarnation, message.epoch) != (self._owner, self._epoch):
            self.metrics.dropped += 1
        elif isinstance(message, PrepareGrammar):
            task = asyncio.create_task(self._prepare_grammar(self._epoch_id, message))
            self._grammars.add(task)
            task.add_done_callback(self._grammars.discard)
        else:
            if isinstance(message, Plan):
                self.metrics.count_plan(message)
                self._request_by_slot.update((new.slot, new.request) for new in message.new)
                if self._agreement is not None:
                    self._agreement.note_plan(message.step + message.n_steps)
            self._steps.submit(self._epoch_id, message)

    async def _prepare_grammar(self, epoch: EpochId, wanted: PrepareGrammar) -> None:
        """Compile a grammar, then send GrammarPrepared. An error in the grammar is reported by the first step that follows
        it."""
        compiled = self._steps.prepare_grammar(wanted.text)
        await asyncio.gather(*map(asyncio.wrap_future, compiled), return_exceptions=True)
        self._answer(epoch, GrammarPrepared(epoch=wanted.epoch, number=wanted.number))

    def _begin_epoch(self, incarnation: int, reset: Reset) -> None:
        self.log.info("epoch begun", epoch=reset.epoch, scheduler_incarnation=incarnation)
        self._owner, self._epoch = incarnation, reset.epoch
        self._epoch_id = epoch_id(incarnation, reset.epoch)
        self._unsent.clear()
        self._request_by_slot.clear()
        self._n_early = 0
        if self._agreement is not None:
            self._agreement.note_epoch(self._epoch_id)
        self._steps.submit(self._epoch_id, reset)

    def _may_run(self, epoch: EpochId, plan: Plan) -> bool:
        """Called on the step thread. A single rank skips plans of an earlier epoch; the ranks of a gang agree on it."""
        return epoch == self._epoch_id if self._agreement is None else self._agreement.wait(epoch, plan.step + plan.n_steps)

    def _prepare_memory(self, epoch: EpochId, reset: Reset, engine: Engine) -> None:
        """Called on the step thread before the slots are cleared."""
        if self._memory is not None and (kv := engine.kv_region) is not None:
            at, began_s = (engine.host_tier, reset.is_memory_suspect, engine.exchange), time.monotonic()
            self._memory_generation = self._memory.prepare(epoch, kv, *at)
            self.log.info("memory taken", epoch=reset.epoch, took_ms=round(1e3 * (time.monotonic() - began_s), 1))

    def _distrust_memory(self) -> None:
        """Called on the thread that has met an error of the device, at once: a kill from outside may come before the report of
        the fault, and the next gang would take the memory for intact."""
        if self._memory is not None:
            self._memory.distrust()

    def _answer(self, epoch: EpochId, message: Message) -> None:
        """Send a message to the scheduler whose Reset began this epoch, and to no other incarnation of it.

        A scheduler's Reset may come before the supervisor announces that scheduler. Until then the message waits."""
        if epoch != self._epoch_id or self._ending.done():
            self.metrics.dropped += 1
        elif self.settings.is_reporter or isinstance(message, GrammarPrepared | Moved):
            self._unsent.append(message)
            self._send_answers()

    def _send_answers(self) -> None:
        peer = self.child.peers.get(self._scheduler)
        if peer is not None and peer.incarnation == self._owner:
            try:
                while self._unsent:
                    self.mailbox.send(self._scheduler, self._unsent.popleft())
            except MailboxFull as error:  # a scheduler that misses a result cannot go on
                self.on_fault("answer", error)

    def _tell_idle(self) -> None:
        """Tell the scheduler that there is nothing to do. Before the first Reset, which a standby gang awaits for long, only a
        bounded number of times: the scheduler reads none of it yet."""
        peer = self.child.peers.get(self._scheduler)
        if not self.settings.is_reporter or peer is None or self._unsent or not self._steps.is_idle:
            return
        self._n_early += peer.incarnation != self._owner
        if self._n_early <= _MAX_EARLY:
            with suppress(MailboxFull):
                self.mailbox.send(self._scheduler, Idle())

    def _end(self, status: int) -> None:
        if not self._ending.done():
            self._ending.set_result(status)

    # -- events of the step thread (gpu_workers.process.step_thread.StepEvents) --------------------------------------------

    def on_loading(self, phase: str, fraction: float) -> None:
        """Report the phase of loading to the supervisor."""
        self._loading.begin(phase)
        self.child.loading(phase, fraction)

    def on_loaded(self, capacity: EngineCapacity) -> None:
        """Report to the supervisor that this rank is ready."""
        self._capacity = capacity
        sizes = {"pages": capacity.n_pages, "slots": capacity.n_slots, "max_length": capacity.max_length}
        details = {"device": capacity.device, **{name: str(size) for name, size in sizes.items()}}
        self.child.ready(details)
        self.log.info("ready", **details, loading_s=self._loading.seconds())

    def on_reset(self, epoch: EpochId) -> None:
        """Answer the Reset with the capacity."""
        if self._capacity is not None:
            self._answer(epoch, Capacity(epoch=self._epoch, memory_generation=self._memory_generation, engine=self._capacity))

    def on_result(self, epoch: EpochId, result: Result) -> None:
        """Count a result and send it to the scheduler."""
        self.metrics.count_result(result)
        self._answer(epoch, result)

    def on_moved(self, epoch: EpochId, moved: Moved) -> None:
        """Tell the scheduler which loads or reads have failed."""
        self._answer(epoch, moved)

    def on_refused(self, epoch: EpochId, failure: StepFailed) -> None:
        """Log a refusal and send it to the scheduler."""
        self.metrics.refused += 1
        slots = failure.suspects[:_MOST_LOGGED].tolist()
        requests = [self._request_by_slot[slot] for slot in slots if slot in self._request_by_slot]
        self.log.warning("plan refused", step=failure.step, reason=failure.reason, slots=slots, requests=requests)
        self._answer(epoch, failure)

    def on_fault(self, doing: str, error: BaseException) -> None:
        """Report the fault to the supervisor and end the process."""
        if not self._ending.done():
            log = self.log.error if self.child.is_ready else self.log.debug  # the supervisor says why a start failed
            log("fault", doing=doing, exc_info=error)
            self._end(self.child.fault(doing, error))

    # -- lifecycle events (messages.child.LifecycleEvents) -----------------------------------------------------------------

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """Send what was waiting for this peer to be announced, if it is the scheduler. Give the memory to a new vault."""
        self._send_answers()
        if self._memory is not None and peer.name == self._memory.vault:
            self._memory.give_again()

    def peer_down(self, name: str, incarnation: int) -> None:
        """Nothing to do: plans of a dead scheduler run to their end, and the Reset of the next one clears the slots."""

    def drain(self, deadline_s: float) -> None:
        """Report drained at once: a worker has no work of its own to finish, its scheduler stops planning."""
        self.child.drained()

    def abandoned(self) -> None:
        """No supervisor came back in time: end as after a Stop."""
        self.log.error("no supervisor came back in time: ending")
        self._end(ExitCode.DONE)

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The progress of this rank, with its metrics if asked for."""
        self._tell_idle()
        self.metrics.late_compilations = self._steps.late_compilations
        mail, known = self.mailbox.statistics(), self.metrics.statistics()
        statistics = {**known, "mail_refused": mail.refused, "mail_lost": mail.lost}
        metrics = take_snapshot(self.registry) if with_metrics else []
        steps, busy_s, limit_s = self._steps.steps, self._steps.busy_s(), self._steps.limit_s()
        if self._agreement is not None:
            limit_s = self._agreement.limit_s(busy_s, limit_s)
        return lifecycle.Progress(steps=steps, busy_s=busy_s, statistics=statistics, metrics=metrics, limit_s=limit_s)


async def run_worker(spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox, build: BuildEngine = build_rank) -> int:
    """Run the actor of one rank; returns the exit status. The supervisor's entry point calls this."""
    return await Worker(spec, make_mailbox, build).run()
