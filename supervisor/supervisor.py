"""The supervisor's loop: it reads the messages of children, asks the policies for decisions, and carries them out.

All children are started at once: a child works without its peers, and is told of each one that becomes ready. A delayed restart
is a timer, so a stop never waits for it.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from messages.ids import SUPERVISOR
from messages.lifecycle import lifecycle
from messages.lifecycle.tree import StatusReport, TreeState
from messages.outcomes import ExitCode
from messages.transport.mailbox import MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from supervisor.child_reports import ChildReports
from supervisor.child_watch import CHECK_EVERY_S, ChildWatch
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.children.process import ExitStatus
from supervisor.children.spawner import Spawner, spawner_of
from supervisor.cordons.keeper import CordonKeeper
from supervisor.directories.rendezvous import Incarnations
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server
from supervisor.operator.display import Display
from supervisor.operator.operator_server import OperatorServer
from supervisor.operator.tree_commands import TreeCommands
from supervisor.parent.link import ParentLink
from supervisor.policy.actions import Action, GiveUp, Kill, Promote, Retire, Start
from supervisor.policy.liveness import Liveness
from supervisor.policy.own_time import ProcessSample
from supervisor.policy.restart_policy import RestartPolicy
from supervisor.policy.spawn_retries import SpawnRetries
from supervisor.policy.states import TreeCommand
from supervisor.restart.hangup import ReloadOnHangup
from supervisor.restart.rolling import RollingRestart
from supervisor.succession import Succession
from supervisor.takeover import Takeover
from supervisor.tree_reports import TreeReports

_PROOF_S = 2.0


class Supervisor:
    """One run of the server. `spawner`: how processes are started; on this machine by default. `link`: the parent that starts
    the next supervisor if this one dies; by default there is none. `target`: of a rolling restart that is under way."""

    def __init__(
        self,
        server: Server,
        display: Display,
        spawner: Spawner | None = None,
        make_mailbox: MailboxFactory = ZmqMailbox,
        link: ParentLink | None = None,
        target: Server | None = None,
    ) -> None:
        self._server, self._display = server, display
        self._link, self._log = link or ParentLink(), structlog.get_logger()
        self._policy = RestartPolicy(server.groups)
        self._liveness, self._spawn_retries = Liveness(CHECK_EVERY_S, self._sample_of), SpawnRetries()
        incarnations = Incarnations(server.run_dir.path / "incarnations.json")
        incarnation = incarnations.next(SUPERVISOR)
        self._mailbox = make_mailbox(SUPERVISOR, incarnation, server.run_dir.supervisor_endpoint)
        settings, template = server.settings, server.spawn_spec_template(incarnation)
        spawner = spawner or spawner_of(self._link, server.run_dir.register_path)
        self._link.make_spare = spawner.fork_spare_supervisor if settings.spares else self._link.make_spare
        self.children = ChildManager(
            server.groups, server.run_dir, self._mailbox, template, incarnations, spawner, self._on_death, settings.spares
        )
        self.children.ending_notices.connect(self._on_ending, self._policy.has_successor)
        self._saved = SavedStateFile(server.run_dir.saved_state_path)
        self.commands = TreeCommands(self.children, display, settings.drain_s, self._on_stopping, self._expect, self._saved)
        self.cordons = CordonKeeper(self.children, self._saved)
        self._status = TreeReports(
            server, self.children, self._policy, self.commands, display, self._saved, self._link, self.cordons
        )
        self._rolling = RollingRestart(server, target, self.children, self._saved, self._is_whole, self._expect)
        self._rolling.can_hand_over(spawner.makes_supervisors, self._link.offer, self.commands.hand_over)
        self._succession = Succession(self._link, self.commands, self._saved, self._is_whole, spawner.fork_successor)
        self._takeover = Takeover(server.run_dir, self.children, self._policy, self._liveness, self.commands, self._saved)
        self._watch = ChildWatch(
            self.children, self._liveness, self._spawn_retries, self._saved, self._link, server, self._start, self._kill
        )
        self._reports = ChildReports(self.children, self._policy, self._liveness, self.commands, display, self._on_ready)
        self._operator_server = OperatorServer(
            server.run_dir.path, self._mailbox, self.children, self.commands, self.report, self._restart, self.cordons.carry_out
        )

    async def run(self) -> int:
        """Run until every child is stopped; returns the exit status of the server.

        After a bug the children of a supervisor with a parent go on serving: the next supervisor adopts them.
        """
        is_replaced = False
        try:
            self.commands.on_hangup = self._hangup().handle
            self.commands.open()
            self._link.beat()
            self._link.listen()
            self._adopt_or_start()
            self.commands.run_task(self._read_messages())
            self.commands.run_task(self._watch.run())
            if self._rolling.roll.is_open:
                self.commands.run_task(self._rolling.run())
            exit_status = await self.commands.ending
            if is_replaced := exit_status == ExitCode.HAND_OVER:
                return exit_status
            self._server.run_dir.note_end(exit_status, self.commands.end_reason)
            return exit_status
        except Exception:
            is_replaced = self._link.has_parent
            raise
        finally:
            self._policy.stopping()
            for record in () if is_replaced else self.children.records:
                self.children.kill(record, "the supervisor ends", "ended")
            if is_replaced:
                self.children.spares.cancel()  # the next supervisor adopts them
            else:
                self.children.end_spares()
                await self.children.spares.wait_gone(_PROOF_S)
            self._link.close()
            self.commands.close()
            self._display.close()
            await self._mailbox.close()

    @property
    def state(self) -> TreeState:
        """What the whole tree is doing now."""
        return self._status.state

    def report(self, with_metrics: bool) -> StatusReport:
        """The state of the whole tree. `with_metrics`: include the metric families of the children."""
        return self._status.report(with_metrics)

    # -- starts and deaths ---------------------------------------------------------------------------------------

    def _adopt_or_start(self) -> None:
        """Take over the children and the command of the last supervisor, then start the children that have no process."""
        adopted = self._takeover.adopt()
        self.commands.resume()
        is_awaited = {r.name for r in self.children.records if self.commands.has_served or not self._policy.is_standby(r.name)}
        missing = [r for r in self.children.records if r not in adopted and r.name in is_awaited]
        if not adopted:
            late = [record.name for record in missing if self.children.starts_late(record.name)]
            self._start(tuple(record.name for record in missing if record.name not in late))
            self.commands.run_task(self._start_late(tuple(late)))
            return
        names = {"adopted": [record.name for record in adopted], "missing": [record.name for record in missing]}
        log = self._log.info if self._rolling.roll.is_open else self._log.warning  # as asked for, or not
        log("the last supervisor has ended: its children are adopted", **names)
        for record in missing:  # as if they had died just now, so that groups are restarted as a whole
            self._policy.started(record.name, record.incarnation)
        for record in missing:
            self._carry_out(self._policy.died(record.name, record.incarnation, time.monotonic(), is_foreign=True))

    async def _start_late(self, names: tuple[str, ...]) -> None:
        """Start these children as soon as their processes can be forked: new interpreters would import the same ten times."""
        await self.children.wait_warm()
        self._start(names)

    def _start(self, names: tuple[str, ...]) -> None:
        if self.commands.is_stopping:
            return
        now_s = time.monotonic()
        started, refusals = self.children.start(names)
        for record in started:
            self._spawn_retries.spawned(record.name)
            self._policy.started(record.name, record.incarnation)
            self._liveness.spawned(record.name, record.spec.deadlines, now_s)
            self._display.loading(record.name, "starting", 0.0)
        for refusal in refusals:
            pause_s = self._spawn_retries.refused(refusal.names, now_s)
            self._log.error("start refused", children=refusal.names, reason=refusal.reason, retry_after_s=pause_s)

    def _notice(self) -> None:
        """Something has changed. Standby gangs are started once everything else serves."""
        had_served = self.commands.has_served
        self._status.notice()
        if self.commands.has_served and not had_served:
            self._start(tuple(record.name for record in self.children.records if self._policy.is_standby(record.name)))

    def _on_ready(self, actions: list[Action]) -> None:
        """A child can serve; the policy wants these actions."""
        if actions:
            self._saved.note_memory(self._policy.memory())
        self._carry_out(actions)
        self._notice()

    def _on_death(self, record: ChildRecord, incarnation: int, exit_status: ExitStatus, cause: lifecycle.Cause) -> None:
        self._liveness.gone(record.name)
        is_expected = self.commands.is_stopping or (record.has_reported_fault and not self.commands.has_served)
        is_wanted = cause == "ended" and (self.commands.is_stopping or self._policy.expects_end_of(record.name))
        is_expected = is_expected or is_wanted
        log = self._log.info if is_expected else self._log.warning
        event = "child ended" if is_wanted else "child died"
        record.replaced_incarnation = incarnation if is_wanted else record.replaced_incarnation
        log(event, child=record.name, incarnation=incarnation, how=str(exit_status), cause=cause)
        unexplained = f"{record.name}: {exit_status}; its log has the reason"
        final = record.fault if record.has_reported_fault else unexplained
        cannot_succeed = final if exit_status.code == ExitCode.UNUSABLE else ""
        self._notice()
        is_foreign = cause == "killed" or (cause == "out_of_memory" and self.commands.has_served)
        self._rolling.note_death(record, incarnation, cause)
        if record.spec.deadlines.continue_s:
            self._watch.holder_died()
        actions = self._policy.died(record.name, incarnation, time.monotonic(), cannot_succeed, is_foreign)
        self._saved.note_memory(self._policy.memory())
        self._carry_out(actions)

    def _on_ending(self, record: ChildRecord, incarnation: int) -> None:
        self._carry_out(self._policy.ending(record.name, incarnation))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Kill(name, reason):
                    self._kill(self.children.record_by_name[name], reason, "gang")
                case Start(names, 0.0):
                    self._start(names)
                case Start(names, delay_s):
                    asyncio.get_running_loop().call_later(delay_s, self._start, names)
                case Promote(names, instead_of):
                    self._log.warning("standby promoted", gang=names, instead_of=instead_of)
                    for name in names:
                        self.children.announce(self.children.record_by_name[name])
                case Retire(title, reason, pause_s):
                    self._status.retired(title, reason, pause_s)
                case GiveUp(exit_status, reason, name):
                    self._give_up(exit_status, reason, self.children.record_by_name[name])

    def _kill(self, record: ChildRecord, reason: str, cause: lifecycle.Cause) -> None:
        self._liveness.gone(record.name)
        self.children.kill(record, reason, cause)

    def _sample_of(self, name: str) -> ProcessSample | None:
        process = self.children.record_by_name[name].process
        return process.sample() if process is not None else None

    def _give_up(self, exit_status: int, reason: str, record: ChildRecord) -> None:
        if record.has_reported_fault and record.fault not in reason:
            reason = f"{reason}; {record.fault} (--log-level debug shows the traceback)"
        self._log.info("giving up", reason=reason, exit_status=int(exit_status))
        self._display.failed(reason)
        self.commands.give_up(exit_status, reason)

    def _on_stopping(self) -> None:
        self._policy.stopping()
        self.children.end_spares()
        for record in self.children.records:
            self._liveness.gone(record.name)
        self._display.close()

    # -- rolling restart ------------------------------------------------------------------------------------------

    def _restart(self, encoded: bytes) -> str:
        """Begin a rolling restart, after which the server is as `encoded` says. Returns "", or why that is not possible now."""
        if not self._link.has_parent or self.commands.present is not TreeCommand.NONE or not self.commands.has_served:
            return f"expected a server that serves, got one that is {self.state}"
        if refusal := self._rolling.begin(encoded, self._policy.active_of_standby()):
            return refusal
        self.commands.run_task(self._rolling.run())
        return ""

    def _hangup(self) -> ReloadOnHangup:
        begin, may = self._replace_groups, self._rolling.may_begin
        return ReloadOnHangup(self._server, lambda: self.children.groups, self._policy.active_of_standby, begin, may_begin=may)

    def _replace_groups(self, target: Server, titles: list[str]) -> str:
        """Replace some groups, after which the server is as `target` says. Returns "", or why that is not possible now."""
        if not self._rolling.may_begin():
            now = "being restarted" if self._rolling.roll.is_open else self.state
            return f"expected a server that serves without a restart under way, got one that is {now}"
        self._rolling.begin_here(target, titles)
        self.commands.run_task(self._rolling.run())
        return ""

    def _is_whole(self) -> bool:
        return self._status.is_complete and self.commands.present is TreeCommand.NONE

    def _expect(self, names: list[str]) -> None:
        self._policy.expect(names)
        for name in names:
            self._liveness.gone(name)
            self.children.ending_notices.tell_ordered(self.children.record_by_name[name], "ended")

    # -- messages -------------------------------------------------------------------------------------------------

    async def _read_messages(self) -> None:
        while True:
            for delivery in await self._mailbox.wait_mail():
                if self._operator_server.handle(delivery):
                    continue
                self._reports.handle(delivery)
