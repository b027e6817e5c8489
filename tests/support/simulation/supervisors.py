"""The lives of the supervisor, and its parent, which starts the next supervisor and keeps what that needs.

The supervisors, their link and the packets on it are the real ones; the parent is a twin of `supervisor/parent/parent.py`. It
also takes the place of the operator who asks for a rolling restart.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import replace
from pathlib import Path

from messages.ids import replica_of
from messages.lifecycle.spawn_spec import LISTEN_SOCKET
from messages.lifecycle.tree import TreeState
from messages.outcomes import ExitCode
from supervisor.config.server_config import ServerConfig
from supervisor.directories.run_dir import RunDir
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server, decode_server, half_restarted, read_server
from supervisor.operator.display import Display
from supervisor.parent.link import ALIVE, KEEP, ParentLink, pack_exits
from supervisor.placement.placement import Placement
from supervisor.policy.states import TreeCommand
from supervisor.start_facts import EmbeddingFacts, FallbackFacts, StartFacts
from supervisor.supervisor import Supervisor
from supervisor.tree import build_tree
from tests.support.simulation.embedding import DIMENSIONS
from tests.support.simulation.processes import Machine, SimulatedSpawner
from tests.support.simulation.virtual_loop import PROCESS, LifeState, SimulatedLife

_NEXT_S = (0.02, 0.5)  # from the death of a supervisor to the next one
_OPEN_S = 0.1  # from its start until a supervisor handles signals
_RUN_DIR = "run_dir"
_ALIVE_S = 0.5  # between two signs of life of the parent
_AGAIN_S = 0.2  # after an order was refused


class SimulatedParent:
    """Starts supervisors until one of them ends the server: `ending` has its exit status then."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        self._kept: dict[bytes, int] = {}
        self._exits: dict[int, int] = {}
        self._end: socket.socket | None = None  # of the link to the present supervisor
        self.life = SimulatedLife("supervisor")
        self.supervisor: Supervisor | None = None
        self.context = copy_context()
        self.ending: asyncio.Future[int] = machine.loop.create_future()
        self.n_deaths = self.n_rolls = self.n_own_deaths = 0
        self._stop_drain_s: float | None = None  # of an order to stop; None: there is none
        self._config = ServerConfig()
        self._next: asyncio.TimerHandle | None = None  # the next supervisor
        machine.on_orphan_exit = self._reaped

    @property
    def run_dir(self) -> Path:
        """The run directory of the server."""
        return self._folder / "run"

    @property
    def pages_dir(self) -> Path:
        """The folder of the files of the disk tier."""
        return self._folder / "pages"

    def journal_of(self, gateway: str) -> Path:
        """The folder of a gateway's journal."""
        return self._folder / f"journal-{replica_of(gateway)}"

    @property
    def is_serving(self) -> bool:
        """There is a supervisor, and its whole tree serves."""
        return self.supervisor is not None and self.supervisor.state is TreeState.SERVING

    def start(self, config: ServerConfig) -> None:
        """Start the first supervisor."""
        self._config = config
        self._start()

    def start_again(self) -> None:
        """The next server, in the directories of one that has ended."""
        kernel, life = self._machine.kernel, self.life
        life.state, life.held, self.supervisor = LifeState.DEAD, [], None
        kernel.close_all_of(life)
        for fd in self._kept.values():
            kernel.close(fd)
        (self._folder / "http").unlink(missing_ok=True)
        self._kept, self._exits, self._end, self._stop_drain_s = {}, {}, None, None  # `_start` may not come: see `die_with_all`
        self._machine.parent += 1
        self.ending = self._machine.loop.create_future()
        # on the loop, because the new supervisor may die at an edge
        self._next = self._machine.loop.call_later(0.0, self._start, context=copy_context())

    def _start(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(self._folder / "http"))
        listener.listen(1024)
        run_dir = RunDir.acquire(self.run_dir)
        self._kept = {f"{_RUN_DIR} {run_dir.path}".encode(): run_dir.lock_fd, f"{LISTEN_SOCKET} ".encode(): listener.detach()}
        _server(self._config, run_dir, self._folder, self._kept[f"{LISTEN_SOCKET} ".encode()]).save()
        self._fork()

    def stop(self, drain_s: float = 0.0) -> None:
        """SIGTERM: passed on to the supervisor, and to the next one if this one dies. `drain_s`: the longest drain before."""
        self._stop_drain_s = drain_s
        if self.supervisor is not None:
            self._machine.loop.call_soon(self.supervisor.commands.stop, drain_s, context=self.context)

    def drain(self, deadline_s: float) -> None:
        """`supervisor drain`, once."""
        if self.supervisor is not None:
            self._machine.loop.call_soon(self.supervisor.commands.drain, deadline_s, False, context=self.context)

    @property
    def is_draining(self) -> bool:
        """A supervisor knows that it shall drain, or stop."""
        return self.supervisor is not None and self.supervisor.commands.present is not TreeCommand.NONE

    @property
    def is_drained(self) -> bool:
        """A supervisor knows that no gateway has anything left to finish."""
        return self.supervisor is not None and self.supervisor.commands.is_drained

    def die_with_all(self) -> None:
        """Every process dies at once: the parent, the supervisor and all children."""
        if self._next is not None:
            self._next.cancel()
        if not self.ending.done():
            self.ending.set_result(ExitCode.FORCED)
        self.n_deaths += 1
        self.life.state, self.life.held, self.supervisor, self._end = LifeState.DEAD, [], None, None
        self._machine.kernel.close_all_of(self.life)
        for process in self._machine.processes:
            process.die(-9)

    def roll(self) -> None:
        """Order a rolling restart, and order it again until the server takes it."""
        self._machine.loop.call_soon(self._order_roll, context=self.context)

    @property
    def is_rolling(self) -> bool:
        """A rolling restart is under way."""
        return self.supervisor is None or self.supervisor._rolling.roll.is_open

    def _order_roll(self) -> None:
        """In the supervisor's process, whose operator tries again while it is refused."""
        if self.ending.done() or self._stop_drain_s is not None:
            return
        supervisor = self.supervisor
        if supervisor is not None and not supervisor._restart(supervisor._server.encoded()):
            self.n_rolls += 1
            return
        outside = copy_context()
        outside.run(PROCESS.set, None)
        self._machine.loop.call_later(_AGAIN_S, self.roll, context=outside)

    def die(self) -> None:
        """The parent itself is killed. The present supervisor notices it and becomes the next parent, which knows what its link
        knew. Its children stay its own; those of earlier supervisors are nobody's. If that supervisor is killed before, the
        twin starts the next one all the same."""
        if self._end is None or self.ending.done():
            return
        self.n_own_deaths += 1
        self._end.close()
        self._end = None

    def kill(self) -> None:
        """End the present supervisor as SIGKILL does."""
        if self.life.state is not LifeState.DEAD and not self.ending.done():
            self.n_deaths += 1
            self._go_on()

    def _go_on(self) -> None:
        """The present supervisor has ended, and the server has not: start the next one."""
        life, self.supervisor = self.life, None
        life.state, life.held = LifeState.DEAD, []
        self._machine.kernel.close_all_of(life)
        self._end = None
        for process in self._machine.processes:
            if process.is_child_of(life):
                process.supervisor_died()
        outside = copy_context()
        outside.run(PROCESS.set, None)
        wait_s = self._machine.chance.uniform(*_NEXT_S)
        self._next = self._machine.loop.call_later(wait_s, self._fork, context=outside)

    def _fork(self) -> None:
        life = SimulatedLife("supervisor", self._machine.new_pid())
        life.on_own_death = self.kill
        self.life, self.context = life, copy_context()
        self.context.run(PROCESS.set, life)
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for text, fd in self._kept.items():
            socket.send_fds(self._end, [KEEP + text], [fd])
        self._end.send(pack_exits(self._exits))
        outside = copy_context()
        outside.run(PROCESS.set, None)
        self._answer(self._end, outside)
        fd = self._machine.kernel.give(other.fileno(), life)
        other.close()
        self.context.run(self._run, fd)

    def _answer(self, end: socket.socket, outside: Context) -> None:
        """Read what the supervisor has sent, and show it that its parent lives."""
        if end is self._end:
            with suppress(OSError):
                end.send(ALIVE, socket.MSG_DONTWAIT)
                while end.recv(1, socket.MSG_DONTWAIT):
                    pass
            self._machine.loop.call_later(_ALIVE_S, self._answer, end, outside, context=outside)

    def _run(self, link_fd: int) -> None:
        """In the new process."""
        self._link = link = ParentLink(socket.socket(fileno=link_fd))
        run_dir = RunDir.resume(Path(link.kept[_RUN_DIR].value), link.kept[_RUN_DIR].fd)
        descriptors = {name: kept.fd for name, kept in link.kept.items()}
        server, target = read_server(run_dir, descriptors), None
        if SavedStateFile(run_dir.saved_state_path).left.roll.is_open:  # as `supervisor.start.resume`
            target = decode_server(run_dir, run_dir.next_server_path.read_bytes(), descriptors)
            server = replace(target, groups=half_restarted(server.groups, target.groups))
        spawner = SimulatedSpawner(self._machine, run_dir.register_path, link.exits)
        self.supervisor = Supervisor(server, Display.of(server), spawner, self._machine.network.mailbox, link, target)
        task = self._machine.loop.create_task(self.supervisor.run())
        task.add_done_callback(self._ended)
        if self._stop_drain_s is not None:
            self._machine.loop.call_later(_OPEN_S, self.supervisor.commands.stop, self._stop_drain_s)

    def _ended(self, task: asyncio.Task[int]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._machine.errors.append(task.exception() or asyncio.CancelledError("supervisor"))
        elif task.result() == ExitCode.HAND_OVER:
            if self._end is None:  # its process becomes the parent
                self._exits = dict(self._link.exits.code_by_pid)
                self._machine.parent += 1
            self._go_on()
            return
        if not self.ending.done():
            self.ending.set_result(1 if task.cancelled() or task.exception() is not None else task.result())

    def _reaped(self, pid: int, code: int) -> None:
        """A child of a dead supervisor has ended."""
        self._exits[pid] = code
        if self._end is not None:
            self._end.send(pack_exits({pid: code}))


def _server(config: ServerConfig, run_dir: RunDir, folder: Path, listen_fd: int) -> Server:
    sizes = {"tp": config.tp, "pp": config.pp, "replicas": config.replicas, "has_standby": bool(config.standby)}
    placement = Placement(device="cpu", gpus=(), dtype="", **sizes)
    facts = StartFacts(
        state_dir=folder,
        run_dir=run_dir.path,
        listen_fd=listen_fd,
        model_setting="hash-chain",
        model_name="hash-chain",
        model_length=512,
        placement=placement,
        embedding=EmbeddingFacts(config.embedding_model, "", 512, DIMENSIONS) if config.embedding_model else None,
        fallback=FallbackFacts(config.fallback.model_name, "hash-chain", 512, "") if config.fallback_model else None,
        cores=2,
    )
    return Server(build_tree(config, facts), run_dir, config.supervisor, "hash-chain", "", "json", "error")
