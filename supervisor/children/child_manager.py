"""All children and their links: starts and kills processes, sends messages, announces which children are up or down.

It carries out decisions of `restart_policy.py` and `liveness.py`; `supervisor.py` connects them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
import zmq

from messages.errors import MailboxFull, UnknownPeer
from messages.lifecycle.cordon import Cordon
from messages.lifecycle.lifecycle import Adopt, Cause, Hello, PeerDown, PeerUp, Welcome
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.lifecycle.tree import ChildState
from messages.transport.mailbox import Mailbox
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.children.ending_notices import EndingNotices
from supervisor.children.exit_cause import Awaited, awaited_by, cause_of
from supervisor.children.process import ChildProcess, ExitStatus, OnExit, Strays
from supervisor.children.spares import Spares
from supervisor.children.spawner import Spawner
from supervisor.children.starter import Starter
from supervisor.directories.register import ChildFacts
from supervisor.directories.rendezvous import Incarnations, remove_gang_dir
from supervisor.directories.run_dir import RunDir
from supervisor.policy.child_spec import ChildSpec, Group

_KNOWN_STATES = (ChildState.ADOPTED, ChildState.STOPPING, ChildState.ENDING)  # others may have heard of it
OnDeath = Callable[[ChildRecord, int, ExitStatus, Cause], None]


@dataclass(frozen=True)
class SpawnRefusal:
    """The machine could not start these children."""

    names: tuple[str, ...]  # to be started together
    reason: str


class ChildManager:
    """All children of one supervisor, in start order. `on_death` is called once for each proven death."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        run_dir: RunDir,
        mailbox: Mailbox,
        spawn_spec_template: SpawnSpec,
        incarnations: Incarnations,
        spawner: Spawner,
        on_death: OnDeath,
        has_spares: bool,
    ) -> None:
        self.groups = groups
        self.record_by_name = {spec.name: ChildRecord(spec) for group in groups for spec in group.children}
        self._group_by_name = {spec.name: group for group in groups for spec in group.children}
        self._run_dir, self._mailbox = run_dir, mailbox
        self._incarnations, self._spawner, self._on_death = incarnations, spawner, on_death
        self.ending_notices = EndingNotices(self.record_by_name, self.send, spawner.take_memory_kill, self._note)
        self.spares = Spares(self._spawn_spare, has_spares)
        self.cordons: list[Cordon] = []  # `CordonKeeper` sets them
        self._strays = Strays()
        self._starter = Starter(spawn_spec_template, run_dir, incarnations, spawner, self.spares, self._watch)
        self._changed = asyncio.Event()
        self._log = structlog.get_logger()

    @property
    def records(self) -> list[ChildRecord]:
        """All children in start order."""
        return list(self.record_by_name.values())

    def members(self, group: Group) -> list[ChildRecord]:
        """The records of a group, in start order."""
        return [self.record_by_name[spec.name] for spec in group.children]

    def replace_group(self, group: Group) -> None:
        """From their next incarnations on, the children of the group with this title are made as `group` says."""
        self.groups = tuple(group if known.title == group.title else known for known in self.groups)
        for spec in group.children:
            self.record_by_name[spec.name].spec = spec
            self._group_by_name[spec.name] = group

    def awaited_by(self, record: ChildRecord) -> Awaited:
        """For whom of its group a child that is silent or stuck may wait."""
        return awaited_by(record, self.members(self._group_by_name[record.name]))

    def start(self, names: Iterable[str]) -> tuple[list[ChildRecord], list[SpawnRefusal]]:
        """Start new incarnations of dead children, in this order. Children of a gang share one incarnation number and one
        directory, and are started together or not at all.

        Returns: (children that were started, children that the machine could not spawn).
        """
        started: list[ChildRecord] = []
        refusals: list[SpawnRefusal] = []
        todo = list(names)
        while todo:
            group = self._group_by_name[todo[0]]
            together = [name for name in todo if self._group_by_name[name] is group] if group.has_rendezvous else todo[:1]
            todo = [name for name in todo if name not in together]
            records = [self.record_by_name[name] for name in together]
            try:
                self._starter.start(records, group.has_rendezvous)
                started += records
            except OSError as error:
                refusals.append(SpawnRefusal(tuple(together), str(error)))
                for record in records:
                    record.phase = f"cannot start now: {error}"
        self.note_change()
        return started, refusals

    def adopt(self) -> list[ChildRecord]:
        """Take over the children of an earlier supervisor of this server. Each is asked to say Hello.

        Returns the records that have a process now, also those whose process is dead already: that is reported soon.
        """
        adopted: list[ChildRecord] = []
        for facts, process in self._spawner.adopt():
            self._incarnations.note(facts.name, facts.incarnation)
            record = self.record_by_name.get(facts.name)
            if record is None or facts.incarnation < record.incarnation:
                process.kill()
            elif facts.died_of is not None:
                record.incarnation, record.n_starts = facts.incarnation, facts.n_starts
                record.last_death = PeerDown(name=facts.name, incarnation=facts.incarnation, cause=facts.died_of)
            else:
                self._adopt(record, facts, process)
                adopted.append(record)
        for name, spare in self._spawner.adopt_spares():
            if self.spares.is_wanted and name in self.record_by_name:
                self.spares.keep(name, spare)
            else:
                spare.kill()
        for record in adopted:
            if record.killed_for is not None:
                self.kill(record, "killed by the last supervisor", record.killed_for)
        self.note_change()
        return adopted

    def starts_late(self, name: str) -> bool:
        """True if its process is forked: at the start of a server it waits until that is possible."""
        return self._spawner.forks(self.record_by_name[name].spec)

    async def wait_warm(self) -> None:
        """Wait until processes can be forked, or it is known that they cannot."""
        await self._spawner.wait_warm()

    def make_spares(self) -> None:
        """Make the missing spares, those of the last children first. What several of them load is loaded once before."""
        specs = [record.spec for record in reversed(self.records)]
        forked = [warm_up for spec in specs if self._spawner.forks(spec) for warm_up in spec.warm_ups]
        if self.spares.is_wanted:
            self._spawner.load(tuple(dict.fromkeys(forked)))
        self.spares.fill(specs)

    def reap_strays(self) -> None:
        """Reap what has become a child of this process without being one of these children. Called about twice a second."""
        own = {record.process.pid for record in self.records if record.process is not None}
        self._strays.reap(own | self.spares.pids | self._spawner.pids())

    def end_spares(self) -> None:
        """Kill all processes that have not become children, and make no more."""
        self.spares.close()
        self._spawner.close()

    def retry_writes(self) -> None:
        """Write the files that a full disk has refused, in a directory that is there."""
        self._run_dir.make_again()
        self._spawner.retry_writes()
        self._incarnations.file.retry()

    def kill(self, record: ChildRecord, reason: str, cause: Cause) -> None:
        """Send SIGKILL. The death is reported, with this cause, when it is proven."""
        if record.is_alive and record.process is not None:
            if record.state is not ChildState.ENDING:
                log = self._log.info if cause == "ended" else self._log.warning  # expected when the server ends
                log("killing child", child=record.name, incarnation=record.incarnation, reason=reason)
                record.enter(ChildState.ENDING)
                record.phase = reason
            record.killed_for = record.killed_for or cause
            self._note(record)  # first: if this supervisor dies, the next one kills the child
            self.ending_notices.tell(record, record.killed_for)
            record.process.kill()

    def _note(self, record: ChildRecord) -> None:
        if record.process is not None:
            self._spawner.note(record.process, record.facts)

    def welcome(self, record: ChildRecord, hello: Hello) -> None:
        """Answer a Hello: connect to the child's inbox, tell it which peers are ready and which deaths it may have missed."""
        try:
            self._mailbox.connect(record.name, record.incarnation, hello.endpoint)
        except zmq.ZMQError as error:  # no descriptor is left
            self.kill(record, f"no connection to its inbox: {error}", "ended")
            return
        record.enter(ChildState.WELCOMED)
        record.endpoint = hello.endpoint
        others = [other for other in self.records if other is not record]
        deaths = [other.last_death for other in others if other.last_death is not None]
        peers = [other.peer for other in others if other.is_announced and other.is_serving]
        self.send(record, Welcome(peers=peers, deaths=deaths, cordons=self.cordons))
        self.note_change()

    def became_ready(self, record: ChildRecord, is_standby: bool) -> None:
        """A child can serve. Announce it to the others, unless it is a standby, which is announced when it is promoted."""
        record.enter(ChildState.READY)
        record.phase = "standby" if is_standby else ""
        self.ending_notices.watch_threads(record)
        if not is_standby:
            self.announce(record)
        self.note_change()

    def announce(self, record: ChildRecord) -> None:
        """Tell all other children that this one can serve, and where."""
        record.is_announced, record.phase = True, ""
        if record.process is not None:
            self._spawner.note(record.process, record.facts)
        for other in self.records:  # an adopted one has it from its Welcome, after the deaths that it has missed
            if other is not record and other.is_reachable and other.state is not ChildState.ADOPTED:
                self.send(other, PeerUp(peer=record.peer))

    def send(self, record: ChildRecord, message: Message) -> None:
        """Send a message to a child. A child that leaves thousands of messages unread is killed as hung."""
        try:
            self._mailbox.send(record.name, message)
        except UnknownPeer:
            return
        except MailboxFull:
            self.kill(record, "does not read its messages", "hung")

    def note_change(self) -> None:
        """Wake `wait_until`: a record has changed."""
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Wait for a condition over the records. Returns False when the deadline passed first."""
        end_s = time.monotonic() + deadline_s
        while not condition():
            self._changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return condition()
        return True

    # -- adoptions and deaths --------------------------------------------------------------------------------------

    def _adopt(self, record: ChildRecord, facts: ChildFacts, process: ChildProcess) -> None:
        endpoint = self._run_dir.endpoint(facts.name, facts.incarnation)
        record.adopt(facts, process, endpoint, time.monotonic())
        self._watch(record, process)
        try:
            self._mailbox.connect(record.name, facts.incarnation, endpoint)
        except zmq.ZMQError as error:  # no descriptor is left
            self.kill(record, f"no connection to its inbox: {error}", "ended")
            return
        self.send(record, Adopt(incarnation=self._mailbox.incarnation, pid=os.getpid()))

    def _watch(self, record: ChildRecord, process: ChildProcess) -> None:
        """Be told of the end of the process that has become the present incarnation of this child."""
        process.on_exit = partial(self._exited, record, record.incarnation)
        process.on_ending = partial(self.ending_notices.process_ends, record, record.incarnation)

    def _spawn_spare(self, spec: ChildSpec, on_exit: OnExit, is_new: bool) -> ChildProcess:
        return self._spawner.spawn(spec, on_exit, spec.warm_ups, is_new)

    def _exited(self, record: ChildRecord, incarnation: int, exit_status: ExitStatus) -> None:
        """A death is proven: close the link, remove the files of this incarnation, tell the others, call `on_death`."""
        was_known = record.is_serving or record.state in _KNOWN_STATES
        cause = cause_of(exit_status, record.killed_for, self._spawner.take_memory_kill)
        how = f"{exit_status}, out of memory" if cause == "out_of_memory" else str(exit_status)
        if record.process is not None:
            self._spawner.note(record.process, msgspec.structs.replace(record.facts, died_of=cause))
        record.end_incarnation(how, cause, time.monotonic())
        self._mailbox.disconnect(record.name)
        self._run_dir.remove_socket(record.name, incarnation)
        if record.gang_dir and not any(other.is_alive for other in self.records if other.gang_dir == record.gang_dir):
            remove_gang_dir(record.gang_dir)
        if was_known:
            for other in self.records:
                if other is not record and other.is_reachable:
                    self.send(other, PeerDown(name=record.name, incarnation=incarnation, cause=cause))
        self._on_death(record, incarnation, exit_status, cause)
        self.note_change()
