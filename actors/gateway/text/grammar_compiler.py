"""Compiles grammars for a gateway in processes of their own, so that a slow or hostile one harms no other request. Callers take
turns for these processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from functools import cache, partial

import msgspec

from actors.gateway.caller_threads import CallerThreads
from actors.gateway.text.grammar_process import CompilerAnswer, GrammarWanted, read_frame, write_frame
from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.grammar import Grammar, GrammarKind

_LIMIT_S = 2.0  # of a processor for one grammar
_PROCESSES = 4  # started when so many grammars are compiled at once
_MOST_KNOWN = 256
_PROGRAM = "actors.gateway.text.grammar_process"
_END_S = 5.0
_TRIES = 2  # a process may be killed by others than its grammar
_LOOK_S = 0.5  # between two looks at the processes that are asked
_STOPPED_S = 0.5  # one that is stopped for so long is ended: it uses no time of a processor
_SILENT_S = 60.0  # one that says nothing for so long is ended in any case, as one that a debugger or a disk holds


class NoCompiler(Exception):
    """The machine cannot start a process or a thread now in which grammars are compiled. The text says why."""


class _Process:
    """One process. Used by one thread at a time."""

    def __init__(self, limit_s: float) -> None:
        argv = [sys.executable, "-m", _PROGRAM, str(limit_s)]
        self._popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._asked_s: float | None = None  # when it was asked; None: it is not asked now
        self._stopped_s: float | None = None  # since when it is known to be stopped

    def ask(self, wanted: GrammarWanted) -> CompilerAnswer | int:
        """The answer, or the number of the signal or the exit status with which the process has ended."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._asked_s, self._stopped_s = time.monotonic(), None
        try:
            write_frame(self._popen.stdin, wanted)
            data = read_frame(self._popen.stdout)
        except OSError:
            data = None
        self._asked_s = None
        if data is not None:
            return msgspec.msgpack.decode(data, type=CompilerAnswer)
        return self._end()

    def look(self) -> None:
        """Called now and then while the process is asked, on the event loop: ends one that is stopped, or silent for long."""
        now_s, asked_s = time.monotonic(), self._asked_s
        if asked_s is None:
            return
        if not self._is_stopped():
            self._stopped_s = None
        elif self._stopped_s is None:
            self._stopped_s = now_s
        is_stopped = self._stopped_s is not None and now_s >= self._stopped_s + _STOPPED_S
        if is_stopped or now_s >= asked_s + _SILENT_S:
            self._popen.kill()

    def _is_stopped(self) -> bool:
        with suppress(ChildProcessError):  # its end is known already
            return os.waitid(os.P_PID, self._popen.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def _end(self) -> int:
        """Free what this process holds, which has ended or is ending. Returns the number of its signal, or its exit status."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was written is not read any more
                    pipe.close()
        try:
            return abs(self._popen.wait(_END_S))
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return abs(self._popen.wait())


class GrammarCompiler:
    """`compile` belongs to one event loop at a time."""

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        """limit_s: the time of a processor that one grammar may take."""
        self._limit_s = limit_s
        self._known: OrderedDict[tuple[Grammar, ReasoningMarks | None], Grammar] = OrderedDict()  # the last used one last
        self._threads = CallerThreads(_PROCESSES, "grammar process")  # each asks a process, and waits
        self._idle: list[_Process] = []
        self._asked: set[_Process] = set()

    async def compile(self, grammar: Grammar, reasoning: ReasoningMarks | None = None, caller: bytes = b"") -> Grammar:
        """Runs `compile_grammar` in another process and returns its result; a grammar that is known is returned at once.
        `caller`: who asks. Raises: GrammarError, also for a grammar that takes too long; NoCompiler."""
        key = (grammar, reasoning)
        known = self._known.pop(key, None)
        if known is None:
            wanted = GrammarWanted(grammar.kind, grammar.text, reasoning)
            work = asyncio.ensure_future(self._threads.run(caller, partial(self._ask, wanted)))
            try:
                while not work.done():
                    await asyncio.wait((work,), timeout=_LOOK_S)
                    self._look()
                known = work.result()
            except RuntimeError as error:  # of a thread that cannot be started
                raise NoCompiler(str(error)) from None
            finally:
                work.cancel()  # if the client has left
        self._known[key] = known
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    def _look(self) -> None:
        """Look at all processes that are asked, also those whose clients have left."""
        for process in [*self._asked]:
            process.look()

    def _ask(self, wanted: GrammarWanted) -> Grammar:
        status = 0
        for _ in range(_TRIES):
            process = self._process(is_new=status != 0)
            self._asked.add(process)
            answer = process.ask(wanted)
            self._asked.discard(process)
            if isinstance(answer, CompilerAnswer):
                self._idle.append(process)
                if answer.error:
                    raise GrammarError(answer.error)
                return Grammar(kind=GrammarKind.LLGUIDANCE, text=answer.compiled)
            status = answer
            if status == signal.SIGPROF:
                raise GrammarError(f"one that takes more than {self._limit_s:g} s of a processor to compile")
        raise GrammarError(f"one that ends the process that compiles it (status {status})")

    def _process(self, *, is_new: bool) -> _Process:
        """A process that nobody asks."""
        with suppress(IndexError):
            if not is_new:
                return self._idle.pop()
        try:
            return _Process(self._limit_s)
        except OSError as error:
            raise NoCompiler(str(error)) from None


@cache
def grammar_compiler() -> GrammarCompiler:
    """The compiler of this process."""
    return GrammarCompiler()
