"""Carries out a rolling restart: replaces one group of children after the other while all others serve.

    supervisor    the next one loads the program in advance -> this one ends and lets its parent execute the program anew, too;
                  the next supervisor adopts the children and goes on here
    each group    new processes load the program in advance -> the old ones hand over and end -> the new ones become ready

Until then whoever dies is replaced by its spare, as always: those of the last supervisor are adopted with the children.

It stops at the first group that does not become ready. That group gets its old settings back and is restarted as after any
death; the groups after it are left as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import msgspec
import structlog

from messages.lifecycle import lifecycle
from messages.lifecycle.lifecycle import Stop
from messages.lifecycle.tree import ChildState
from messages.log_file.level_file import LEVEL_FILE
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.directories.atomic_file import AtomicFile
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server, decode_server
from supervisor.operator.shutdown import unwritten
from supervisor.parent.link import Successor
from supervisor.policy.child_spec import Group
from supervisor.policy.roll import FIRST, Roll, order_of_groups
from supervisor.restart.fresh_supervisor import FreshSupervisorFailed, start_fresh_supervisor

_WHOLE_S = 120.0  # for the tree to be complete again before the next group is replaced
_WRITTEN_S = 120.0  # for a gateway's journal to be writable, without which its successor would compute again what it shows
_HAND_OVER_S = 5.0  # for a group to hand over and end; then it is killed
_SETTLE_S = 0.5  # between two groups: what a new process needs from the others, such as a gateway's holds, comes meanwhile
_FOREIGN = ("killed", "out_of_memory", "gang")  # causes of death that say nothing about the new program


class _Failed(Exception):
    """The rolling restart stops here, for this reason."""


class RollingRestart:
    """The rolling restart of one supervisor. `target`: what the server consists of afterwards; None: none is under way.

    `is_whole` says whether every child serves and the tree has no command. `expect(names)` is called before these children end.
    """

    def __init__(
        self,
        server: Server,
        target: Server | None,
        children: ChildManager,
        saved: SavedStateFile,
        is_whole: Callable[[], bool],
        expect: Callable[[list[str]], None],
    ) -> None:
        self._server, self._target, self._children, self._saved = server, target, children, saved
        self._is_whole, self._expect = is_whole, expect
        self.roll: Roll = saved.left.roll
        self._group: Group | None = None  # that is being replaced, as it was
        self._before: dict[str, int] = {}  # its incarnations then
        self._failure = ""
        self._log = structlog.get_logger()

    def can_hand_over(self, in_advance: bool, offer: Callable[[Successor], None], end: Callable[[], None]) -> None:
        """How the supervisor is replaced. `in_advance`: the next one is started before, and `offer` gives it to the parent;
        otherwise the parent starts it. `end` ends this one."""
        self._in_advance, self._offer, self._end_supervisor = in_advance, offer, end

    def begin(self, encoded: bytes, active_of_standby: dict[str, str]) -> str:
        """Begin a rolling restart, after which the server is as `encoded` says. It goes on in the next supervisor. Returns
        "", or why it is refused."""
        if self.roll.is_open:
            return "expected no rolling restart, got one that is under way; supervisor status shows it"
        if names := unwritten(self._children.records):
            return f"{_writable(names)}; make room and restart again"
        titles = [group.title for group in self._children.groups]
        try:
            target = decode_server(self._server.run_dir, encoded)
            if [group.title for group in target.groups] != titles:
                return "expected the same groups of processes as now, got others"
        except msgspec.DecodeError as error:
            return f"expected a description of the server after the restart, got something else ({error})"
        AtomicFile(self._server.run_dir.next_server_path).write(encoded)
        with suppress(OSError):  # the new processes have the level of the configuration
            (self._server.run_dir.path / LEVEL_FILE).unlink(missing_ok=True)
        self._note(self.roll.begin(order_of_groups(titles, active_of_standby)))
        return ""

    def may_begin(self) -> bool:
        """True if every child serves, the tree has no command, and no restart is under way."""
        return not self.roll.is_open and self._is_whole()

    def begin_here(self, target: Server, titles: list[str]) -> None:
        """Replace these groups alone, so that the server is as `target` says; `run` follows in this supervisor."""
        AtomicFile(target.run_dir.next_server_path).write(target.encoded())
        self._target = target
        self._server = replace(target, groups=self._children.groups)
        self._note(self.roll.begin(titles, with_supervisor=False))

    def _is_replacing(self, record: ChildRecord) -> bool:
        """True if this incarnation ends because it is replaced."""
        return self._before.get(record.name) == record.incarnation

    def note_death(self, record: ChildRecord, incarnation: int, cause: lifecycle.Cause) -> None:
        """Note the proven death of a child, before the child is started again."""
        if incarnation <= self._before.get(record.name, incarnation) or cause in _FOREIGN or self._failure:
            return
        why = f"; {record.fault}" if record.has_reported_fault else "; the log has the reason"
        self._failure = f"{record.name}: its new process did not become ready ({record.last_exit}{why})"
        self._put_back()

    async def run(self) -> None:
        """Replace what is left to be replaced: this supervisor, or if that is done, the groups."""
        try:
            if self.roll.todo[0] == FIRST:
                return await self._replace_supervisor()
            for title in self.roll.todo:
                await self._replace(title)
                self._note(self.roll.replaced())
        except _Failed as error:
            self._note(self.roll.failed(str(error)))
            self._log.error("rolling restart stopped", reason=str(error), not_replaced=self.roll.todo)
        finally:
            self._group, self._before = None, {}
            self._children.note_change()

    async def _replace_supervisor(self) -> None:
        """End this supervisor as soon as the next one has loaded the program that is on disk now. Raises: _Failed."""
        with ExitStack() as stack:
            try:
                fresh = await start_fresh_supervisor() if self._in_advance else None
                if fresh is not None:
                    stack.callback(fresh.end.close)  # it ends, unless the parent has its end of the link, too
                if not await self._children.wait_until(self._is_whole, _WHOLE_S):
                    raise _Failed(_not_whole(FIRST))
                if fresh is not None:
                    self._offer(fresh)
            except (FreshSupervisorFailed, OSError) as error:
                raise _Failed(f"{FIRST}: {error}; the old one goes on") from None
        self._note(self.roll.replaced())
        self._end_supervisor()

    async def _replace(self, title: str) -> None:
        assert self._target is not None
        began_s = time.monotonic()
        wanted = next(group for group in self._target.groups if group.title == title)
        if not await self._children.wait_until(self._is_whole, _WHOLE_S):
            raise _Failed(_not_whole(title))
        deadline_s = max(spec.deadlines.hello_s for spec in wanted.children)
        if why := await self._children.spares.renew(wanted.children, deadline_s):
            raise _Failed(f"{why}; the old one goes on")
        if not await self._children.wait_until(self._is_whole, _WHOLE_S):
            raise _Failed(_not_whole(title))
        await self._wait_written(wanted)
        self._group = next(group for group in self._children.groups if group.title == title)
        self._put(wanted)
        records = self._children.members(wanted)
        self._before, self._failure = {record.name: record.incarnation for record in records}, ""
        handed_over_s = time.monotonic()
        await self._end(records)
        await self._wait_ready(wanted, records)
        now_s = time.monotonic()
        facts = {"took_s": round(now_s - began_s, 3), "down_s": round(now_s - handed_over_s, 3)}
        self._log.info("group replaced", group=title, **facts)
        await self._children.wait_until(lambda: False, _SETTLE_S)

    async def _wait_written(self, wanted: Group) -> None:
        """Wait until no gateway of this group holds what its journal does not have. Raises: _Failed."""

        def names() -> list[str]:
            return unwritten(self._children.members(wanted))

        if names():
            self._log.warning("rolling restart waits for room on the disk", not_written=names())
        if not await self._children.wait_until(lambda: not names(), _WRITTEN_S):
            raise _Failed(f"{wanted.title}: {_writable(names())} for {_WRITTEN_S:g} s; the old one goes on")

    async def _end(self, records: list[ChildRecord]) -> None:
        """Let the old processes hand over. Those that do not end in time are killed."""
        self._expect([record.name for record in records])
        for record in records:
            if record.state is ChildState.READY:
                record.enter(ChildState.STOPPING)
                self._children.send(record, Stop(hand_over=True))
        if not await self._children.wait_until(lambda: not any(map(self._is_replacing, records)), _HAND_OVER_S):
            for record in filter(self._is_replacing, records):
                self._children.kill(record, "did not hand over in time", "ended")

    async def _wait_ready(self, wanted: Group, records: list[ChildRecord]) -> None:
        """Wait until the new processes can serve. Raises: _Failed."""
        deadline_s = max(spec.deadlines.hello_s + spec.deadlines.ready_s for spec in wanted.children)

        def is_ready() -> bool:
            return all(record.is_serving and not self._is_replacing(record) for record in records)

        is_over = await self._children.wait_until(lambda: bool(self._failure) or is_ready(), deadline_s)
        if self._failure:
            raise _Failed(self._failure)
        if not is_over:
            self._put_back()
            raise _Failed(f"{wanted.title}: expected it to be ready within {deadline_s:g} s, got nothing")

    def _put_back(self) -> None:
        """The next incarnations of the present group have the old settings again."""
        if self._group is not None:
            self._put(self._group)

    def _put(self, group: Group) -> None:
        """The next incarnations of these children are made as `group` says, also by the next supervisor."""
        self._children.replace_group(group)
        replace(self._server, groups=self._children.groups).save()

    def _note(self, roll: Roll) -> None:
        self.roll = roll
        self._saved.note_roll(roll)


def _writable(names: list[str]) -> str:
    return f"expected journals that can be written, got a disk that refuses writes of {', '.join(names)}"


def _not_whole(title: str) -> str:
    return (
        f"{title}: expected all processes to serve, and no drain or stop to be under way, within {_WHOLE_S:g} s;"
        " the processes of this group were not replaced"
    )
