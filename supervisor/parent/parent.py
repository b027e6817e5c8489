"""What `supervisor start` becomes: a small process that starts the supervisor again when it dies or freezes.

    parent ── supervisor ── children        the supervisor dies:      parent ── next supervisor
                                                                         └──── children, which go on serving

The parent is the *subreaper* of the tree: children of a dead supervisor become its own, so it learns their exit statuses. It
holds the locks and the listening socket that the supervisor gives it, and hands all of this to the next one. It decodes no
message of a child or a client, imports nothing but the standard library, and has one thread, so little in it can fail. Each
supervisor is a fork of it, which then imports the program; it may ask for the next one in advance (`next_supervisor.py`).

For a rolling restart the supervisor ends with `ExitCode.HAND_OVER`. Then the parent executes the program in place, as it is on
disk now (`supervisor/parent_program.py`): it keeps its process id, its children, and all descriptors that it holds.

When the parent itself is killed, the supervisor ends its event loop and executes the parent's program in its own process
(`supervisor/succession.py`): the supervisor's children are its children already. So the tree is the same as before.

When a supervisor has ended the tree by itself, the parent exits with its status. Signals that stop the server are passed on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time

from messages.outcomes import ExitCode
from supervisor.log_stream import LogStream
from supervisor.parent.execution import HANDLED, IGNORED, STOP_SIGNALS, ParentState, execute_parent, load_state
from supervisor.parent.kept_descriptors import KeptDescriptors
from supervisor.parent.kernel import adopt_descendants, children_of, die_with
from supervisor.parent.link import ALIVE, FRESH, KEEP, NEXT, OPEN, PACKET_BYTES, SPARE, ParentLink, pack_exits
from supervisor.parent.next_supervisor import NextSupervisor
from supervisor.parent.orders import Orders
from supervisor.parent.process_sample import sample_of
from supervisor.parent.silence import FROZEN_S, POLL_EVERY_S, SUSPENDED_S, Silence, Stops

# Exit statuses of a supervisor that has ended its tree, or never had one
_FINAL = frozenset(ExitCode) - {ExitCode.FAULT, ExitCode.NO_SERVER, ExitCode.HAND_OVER}
_STARTING_S = 10.0  # the same as FROZEN_S for a supervisor that imports its program and adopts children
_BUDGET, _WINDOW_S = 5, 60.0  # supervisors that may fail in this time
_RETRY_S = 0.05
_PROOF_S = 5.0  # for the death of what is killed at the end
_MAX_EXITS = 256


def start_under_parent() -> ParentLink:
    """Become the parent, and return in each supervisor that it forks; the parent itself never returns."""
    parent = Parent()
    link = parent.run()
    parent.close()
    return link


class Parent:
    """The parent's only object. Times are seconds; a second in which this process did not run is not counted."""

    def __init__(self) -> None:
        self._kept = KeptDescriptors()
        self._exits: dict[int, int] = {}  # process id -> return code of processes that have lost their supervisor
        self._orders = Orders()
        self._pid = 0
        self._socket = self._other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._has_opened = self._is_open = False  # ever; the present supervisor
        self._is_closed = False
        self._silence = Silence(lambda: sample_of(self._pid))
        self._stops = Stops(lambda: sample_of(self._pid))
        self._next, self._is_next_wanted = NextSupervisor(), False
        self._failures_s: list[float] = []
        self._wakeup, self._wakeup_in = os.pipe()
        self._log = LogStream(sys.stderr.fileno())
        self._handlers: list[tuple[int, object]] = []
        if (state := load_state()) is not None:
            self._restore(state)

    def run(self) -> ParentLink:
        """Serve until the tree has ended, then exit. Returns in the forked supervisor only."""
        adopt_descendants()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(self._wakeup_in, False)
        signal.set_wakeup_fd(self._wakeup_in, warn_on_full_buffer=False)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        for number in HANDLED:
            self._handlers.append((number, signal.signal(number, _do_nothing)))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)  # they are blocked while the program is executed in place
        if self._fork():
            return ParentLink(self._other)
        tick_s = time.monotonic() + POLL_EVERY_S
        while True:
            wait_s = min(max(tick_s - time.monotonic(), 0.0), self._stops.wait_s)
            readable = select.select([self._wakeup, self._socket], [], [], wait_s)[0]
            if self._socket in readable:
                self._hear()
            if self._wakeup in readable:
                self._pass_on(os.read(self._wakeup, 4096))
                if self._reap():
                    return ParentLink(self._other)
            if self._is_next_wanted and self._make_next():
                return ParentLink(self._other)
            self._look_for_stop(self._wakeup in readable)
            if time.monotonic() >= tick_s:
                tick_s = time.monotonic() + POLL_EVERY_S
                self._tick()

    def close(self) -> None:
        """In a new supervisor: give back what only the parent needs."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers:
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
        if self._is_closed:
            return
        self._is_closed = True
        for fd in (self._wakeup, self._wakeup_in, *self._kept.fds):
            os.close(fd)
        self._next.close()
        self._socket.close()
        self._log.close()

    # -- the supervisor -------------------------------------------------------------------------------------------

    def _fork(self) -> bool:
        """Start a supervisor and send it what is kept. Returns True in the new process."""
        self._socket.close()
        self._other.close()
        if (ready := self._next.take()) is not None:
            self._pid, self._socket = ready
            self._send_kept()
            return False
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._send_kept()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.setsid()  # so that Ctrl-C reaches the parent alone
            if not self._has_opened:  # at a first start nothing runs yet that should outlive the parent
                die_with(parent)
            return True
        self._other.close()
        return False

    def _send_kept(self) -> None:
        self._kept.send(self._socket)
        self._socket.send(pack_exits(self._exits))
        self._socket.setblocking(False)
        self._silence.heard()
        self._is_open = False

    def _make_next(self) -> bool:
        """Make the next supervisor in advance. Returns True in it, as soon as it is needed."""
        self._is_next_wanted = False
        with contextlib.suppress(OSError):  # the supervisor asks again
            if self._next.look() and (end := self._next.make(self.close)) is not None:
                self._other = end
                return True
        return False

    def _hear(self) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._socket, PACKET_BYTES, 1)
        except OSError:
            return
        self._silence.heard()
        if packet.startswith(KEEP) and fds:
            self._kept.keep(packet[len(KEEP) :], fds[0])
        elif packet.startswith((FRESH, SPARE)) and fds:
            self._next.take_given(packet, fds[0])
        elif packet == NEXT:
            self._is_next_wanted = True
        elif packet == OPEN:
            with contextlib.suppress(OSError):  # it does not read now
                self._socket.send(ALIVE)
            self._orders.heard()
            if not self._is_open:
                self._has_opened = self._is_open = True
                for number in self._orders.sent():
                    os.kill(self._pid, number)
        elif not packet:  # it has closed its end; its death follows, with a signal
            select.select([self._wakeup], [], [], _RETRY_S)

    def _tick(self) -> None:
        """While a server starts, a supervisor that has not opened its link yet may take its time: nothing needs it yet. Later
        one that is stopped from outside is replaced soon: that costs nothing, and children that are stopped with it wait."""
        silent_s = self._silence.poll()
        limit_s = SUSPENDED_S if self._silence.is_suspended else FROZEN_S if self._is_open else _STARTING_S
        if self._has_opened and silent_s > limit_s:
            self._say(f"the supervisor (pid {self._pid}) has not been heard for {limit_s:g} s: killed, to be replaced")
            self._silence.heard()
            os.kill(self._pid, signal.SIGKILL)

    def _look_for_stop(self, is_told: bool) -> None:
        """Replace a supervisor that stays stopped. `is_told`: the kernel may have said that it was stopped."""
        if self._has_opened and self._stops.look(is_told, time.monotonic()):
            self._say(f"the supervisor (pid {self._pid}) is stopped: killed, to be replaced")
            self._silence.heard()
            os.kill(self._pid, signal.SIGKILL)

    def _pass_on(self, numbers: bytes) -> None:
        """Send signals that order a stop to the supervisor, at once or as soon as it can handle them."""
        for number in numbers:
            if number in STOP_SIGNALS:
                self._orders.note(number)
                if self._is_open or not self._has_opened:
                    os.kill(self._pid, number)

    def _reap(self) -> bool:
        """Take the exit statuses of dead processes. Returns True in a new supervisor."""
        ended: int | None = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._pid:
                ended = os.waitstatus_to_exitcode(status)
                continue
            if pid == self._next.pid:
                self._next.died()
                continue
            self._exits[pid] = os.waitstatus_to_exitcode(status)
            while len(self._exits) > _MAX_EXITS:
                del self._exits[next(iter(self._exits))]
            with contextlib.suppress(OSError):  # it does not read now: the next supervisor gets all of them
                self._socket.send(pack_exits({pid: self._exits[pid]}))
        return ended is not None and self._supervisor_ended(ended)

    def _supervisor_ended(self, code: int) -> bool:
        """Start the next supervisor, or exit. Returns True in a new supervisor."""
        with contextlib.suppress(OSError):
            while self._socket.recv(1, socket.MSG_PEEK):  # what it has still given to us
                self._hear()
        if code in _FINAL or not self._has_opened:
            self._leave(code)
        if code == ExitCode.HAND_OVER:
            self._execute()
        now_s = time.monotonic()
        if code not in (-signal.SIGKILL, ExitCode.HAND_OVER) or not self._is_open:  # a kill says nothing about the next one
            self._failures_s = [at for at in self._failures_s if now_s - at < _WINDOW_S] + [now_s]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        if len(self._failures_s) > _BUDGET:
            self._say(f"the supervisor {how}; it failed {len(self._failures_s)} times in {_WINDOW_S:g} s: the server ends")
            self._leave(ExitCode.FAULT)
        self._exits[self._pid] = code  # the next supervisor logs how this one ended
        while True:
            with contextlib.suppress(OSError):  # no process or no descriptor is left: try again
                return self._fork()
            time.sleep(_RETRY_S)

    # -- the program executed in place ----------------------------------------------------------------------------

    def _execute(self) -> None:
        """Execute the program as it is on disk now. Returns only if that is not possible: then this one goes on."""
        fresh = self._next.for_new_program()
        try:
            execute_parent(ParentState(self._kept.by_text, self._exits, self._orders.numbers, self._failures_s, fresh))
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            self._say(f"the program could not be executed again ({error}): the next supervisor runs the old one")

    def _restore(self, state: ParentState) -> None:
        """Go on with what the parent before knew."""
        self._kept.restore(state.kept)
        self._exits, self._orders, self._failures_s = state.exits, Orders(state.orders), state.failures_s
        if state.next_supervisor is not None:
            self._next.go_on(*state.next_supervisor)
        self._has_opened = True
        os.write(self._wakeup_in, b"\0")  # some child may have ended meanwhile

    # -- the end --------------------------------------------------------------------------------------------------

    def _leave(self, code: int) -> None:
        """Kill what is left of the tree and exit as the supervisor did."""
        end_s = time.monotonic() + _PROOF_S
        while (left := children_of(os.getpid())) and time.monotonic() < end_s:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(_RETRY_S)
        if code < 0:
            with contextlib.suppress(OSError):  # SIGKILL has no other handling
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a closed terminal or a full disk
            self._log.write(f"supervisor: {text}\n")


def _do_nothing(*_: object) -> None:
    """The wake-up descriptor has the signal's number."""
