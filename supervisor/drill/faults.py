"""What a drill does to a server: signals to processes that are found by role, id or command line, or a command of the operator.

kill:worker            SIGKILL to a ready child of this role, or with this name (worker/0.1), of our own server; standbys have
                       a role of their own, standby
pause:scheduler:3      SIGSTOP, and SIGCONT after 3 seconds
kill:pid=1234          a process by its id; its children are left alone
pause:embedder:5       the process that computes embeddings; clients ask for vectors meanwhile instead of streams
kill:parent            the parent of the supervisor; kill:supervisor is the supervisor itself, kill:fork_server what makes the
                       processes of its actors
kill:match=REGEX       the newest process whose command line matches
kill:container=REGEX   the newest running container whose name or image matches; docker or podman stops it
run:COMMAND            a shell command, such as: run:docker kill -s KILL vllm
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from messages.errors import ConfigError
from messages.ids import ROLES, role_of
from messages.lifecycle.tree import ChildState, ChildStatus, TreeState
from supervisor.children.fork_server import find_fork_server
from supervisor.directories.run_dir_files import read_pid
from supervisor.drill.containers import Container, find_container
from supervisor.operator.calls import NoServer, ask_status

Found = tuple[str, int] | Container  # (name, process id), or a container

_CLOSED = (TreeState.DRAINING, TreeState.DRAINED, TreeState.STOPPING)
_COMMAND_S = 60.0
_DEFAULT_PAUSE_S = 2.0
_POLL_S, _FIND_S = 0.05, 30.0
_FORK_SERVER = "fork_server"
_STANDBY = "standby"  # the phase of a child that waits for its promotion
_PATTERNS = ("match=", "container=")
_OTHERS = "a fault of another server is --fault kill:match=REGEX, kill:pid=NUMBER, kill:container=REGEX or run:COMMAND"
_PLACES = (
    *(role for role in ROLES if role != "operator"),
    _STANDBY,
    "parent",
    _FORK_SERVER,
    "any",
)  # what a target of our own server is


class FaultKind(Enum):
    """How a process is harmed."""

    KILL = "kill"
    PAUSE = "pause"
    RUN = "run"


@dataclass(frozen=True)
class PlannedFault:
    """One kind of harm. `target`: a role, a child's name, "pid=..", "match=..", "container=..", or a shell command for RUN."""

    kind: FaultKind
    target: str
    pause_s: float = 0.0
    text: str = ""  # as the operator wrote it


def parse_fault(text: str) -> PlannedFault:
    """A fault from its text; see the head of this file. Raises: ConfigError."""
    word, _, rest = text.partition(":")
    try:
        kind = FaultKind(word)
    except ValueError:
        kinds = ", ".join(kind.value for kind in FaultKind)
        raise ConfigError(f"fault: expected {kinds} before the colon, got {text!r}") from None
    if not rest:
        raise ConfigError(f"fault: expected {word}:TARGET, got {text!r}")
    if kind is not FaultKind.PAUSE:
        _check_target(kind, rest)
        return PlannedFault(kind, rest, text=text)
    target, _, seconds = rest.rpartition(":")
    try:
        pause_s = float(seconds) if target else _DEFAULT_PAUSE_S
    except ValueError:
        raise ConfigError(f"fault: expected pause:TARGET:SECONDS, got {text!r}") from None
    _check_target(kind, target or rest)
    return PlannedFault(kind, target or rest, pause_s, text)


def _check_target(kind: FaultKind, target: str) -> None:
    if kind is FaultKind.RUN:
        return
    if target.startswith("pid="):
        if not target[4:].isdigit():
            raise ConfigError(f"fault: expected a process id after pid=, got {target[4:]!r}")
    elif not target.startswith(_PATTERNS):
        if target.partition("/")[0] not in _PLACES:
            places = ", ".join(_PLACES)
            expected = f"{places}, a name, pid=NUMBER, match=REGEX or container=REGEX"
            raise ConfigError(f"fault: expected {expected}, got {target!r}")
    else:
        word, _, pattern = target.partition("=")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"fault: expected a regular expression after {word}=, got {pattern!r} ({error})") from None


def check_present(fault: PlannedFault, run_dir: Path) -> None:
    """Return if there is something that this fault can harm.

    Raises: ConfigError if there is nothing; at once if the target is in a server of ours and none answers.
    """
    if fault.kind is FaultKind.RUN:
        return
    if not fault.target.startswith(("pid=", *_PATTERNS)):
        try:
            state = ask_status(run_dir).state
        except NoServer as error:
            raise ConfigError(f"{error}; {_OTHERS}") from None
        if state in _CLOSED:
            raise ConfigError(f"fault: expected a server that takes new requests, got one that is {state.value}")
    _find(lambda: _look(fault.target, run_dir, random.Random(0)), fault.target)


async def inflict(fault: PlannedFault, run_dir: Path, chance: random.Random) -> str:
    """Harm the server once; returns what was harmed. A pause has begun when this returns; it ends by itself.

    Raises: ConfigError when no such process is found within 30 s, or the command fails.
    """
    if fault.kind is FaultKind.RUN:
        await _run_command(fault.target)
        return fault.target
    found = await asyncio.to_thread(_find, lambda: _look(fault.target, run_dir, chance), fault.target)
    if isinstance(found, Container):
        await asyncio.to_thread(found.kill if fault.kind is FaultKind.KILL else found.pause)
        if fault.kind is FaultKind.PAUSE:
            loop = asyncio.get_running_loop()
            loop.call_later(fault.pause_s, loop.run_in_executor, None, found.resume)
        return found.name
    name, pid = found
    harm(fault, pid)
    return name


def harm(fault: PlannedFault, pid: int) -> None:
    """Kill a process, or stop it and let it continue later. Raises: ProcessLookupError."""
    os.kill(pid, signal.SIGKILL if fault.kind is FaultKind.KILL else signal.SIGSTOP)
    if fault.kind is FaultKind.PAUSE:
        asyncio.get_running_loop().call_later(fault.pause_s, resume, pid)


def resume(pid: int) -> None:
    """Let a paused process continue, if it is still there."""
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


async def _run_command(command: str) -> None:
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), _COMMAND_S)
    except TimeoutError:
        process.kill()
        raise ConfigError(f"fault: expected {command!r} to end within {_COMMAND_S:g} s, got none") from None
    if process.returncode:
        last = errors.decode(errors="replace").strip()[-200:]
        said = f": {last}" if last else ""
        raise ConfigError(f"fault: expected {command!r} to succeed, got exit status {process.returncode}{said}")


def _find(look: Callable[[], Found | None], target: str) -> Found:
    """Call `look` until it finds something, and return that. Raises: ConfigError after 30 s; `target` is named there."""
    end_s = time.monotonic() + _FIND_S
    while time.monotonic() < end_s:
        if (found := look()) is not None:
            return found
        time.sleep(_POLL_S)
    raise ConfigError(f"fault: expected a running target for {target!r} within {_FIND_S:g} s, got none")


def _look(target: str, run_dir: Path, chance: random.Random) -> Found | None:
    """What the target means now; None if that may still come. Raises: ConfigError if it cannot."""
    if target.startswith("pid="):
        pid = int(target[4:])
        if not _is_alive(pid):  # nobody else gets this id
            raise ConfigError(f"fault: expected a living process for {target!r}, got none")
        return target, pid
    if target.startswith("match="):
        return _newest_match(re.compile(target[6:]))
    if target.startswith("container="):
        return find_container(re.compile(target[10:]))
    return _child(target, run_dir, chance)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _newest_match(pattern: re.Pattern[str]) -> tuple[str, int] | None:
    newest: tuple[float, str, int] | None = None
    for process in psutil.process_iter(["pid", "cmdline", "create_time"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.info["pid"] != os.getpid() and "supervisor drill" not in line and pattern.search(line):
            found = (process.info["create_time"], line[:60], process.info["pid"])
            newest = max(newest, found) if newest else found
    return (newest[1], newest[2]) if newest else None


def _child(target: str, run_dir: Path, chance: random.Random) -> tuple[str, int] | None:
    if target == "supervisor":
        return _process("supervisor", read_pid(run_dir))
    if target == _FORK_SERVER:
        return _process(_FORK_SERVER, find_fork_server(read_pid(run_dir) or 0))
    try:
        report = ask_status(run_dir)
    except NoServer:
        return None
    if target == "parent":
        return _process("parent", report.parent_pid)
    ready = [c for c in report.children if c.state == ChildState.READY and target in ("any", c.name, _role(c))]
    chosen = chance.choice(ready) if ready else None
    return (chosen.name, chosen.pid) if chosen else None


def _role(child: ChildStatus) -> str:
    return _STANDBY if child.phase == _STANDBY else role_of(child.name)


def is_whole(run_dir: Path, spared: set[str]) -> bool:
    """True if every child of our own server is ready, its standbys too, or if the server is another one.

    spared: children that have had a spare. They must have one again; those that have one now are added."""
    try:
        children = ask_status(run_dir).children
    except NoServer:
        return True
    have = {child.name for child in children if child.has_spare}
    spared |= have
    return have >= spared and all(child.state == ChildState.READY for child in children)


def _process(name: str, pid: int | None) -> tuple[str, int] | None:
    return (name, pid) if pid else None
