"""The process that compiles grammars for a gateway, one after the other, each within a limited time of a processor.

A thread that compiles cannot be stopped, and a grammar may take for ever: the states of patterns that must match together
multiply. Others take all memory or all of the stack. Here only this process dies of them.

It reads `GrammarWanted` from its standard input and writes a `CompilerAnswer` for each to its standard output, both as msgpack
after their length (4 bytes, little-endian). Its argument is the limit in seconds.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import IO

import msgspec

from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.grammar import Grammar, GrammarKind
from messages.outcomes import ExitCode

_MEMORY_BYTES = 2 << 30  # of address space
_LENGTH_BYTES = 4


class GrammarWanted(msgspec.Struct, frozen=True):
    """A grammar of any length to compile, see `compile_grammar`."""

    kind: GrammarKind
    text: str
    reasoning: ReasoningMarks | None


class CompilerAnswer(msgspec.Struct, frozen=True):
    """The text that ranks follow, or why there is none."""

    compiled: str = ""
    error: str = ""  # if it is not compiled


def write_frame(pipe: IO[bytes], value: msgspec.Struct) -> None:
    """Write a value with its length. Raises: OSError if nobody reads."""
    data = msgspec.msgpack.encode(value)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """The next value as msgpack; None if the other side has ended."""
    size = int.from_bytes(head, "little") if len(head := pipe.read(_LENGTH_BYTES)) == _LENGTH_BYTES else -1
    data = pipe.read(size) if size >= 0 else b""
    return data if len(data) == size else None


def _compile(wanted: GrammarWanted) -> CompilerAnswer:
    try:
        return CompilerAnswer(compiled=compile_grammar(Grammar(kind=wanted.kind, text=wanted.text), wanted.reasoning).text)
    except (GrammarError, MemoryError) as error:
        return CompilerAnswer(error=str(error) or "one that needs too much memory")
    except RecursionError:
        return CompilerAnswer(error="one that is nested too deeply")


def main(limit_s: float) -> None:
    """Compile until the standard input ends, each grammar for at most `limit_s` seconds of a processor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is for the server, which then ends the standard input
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (data := read_frame(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, limit_s)  # SIGPROF ends the process, also amid the library's own code
        answer = _compile(msgspec.msgpack.decode(data, type=GrammarWanted))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        try:
            write_frame(sys.stdout.buffer, answer)
        except OSError:  # the gateway is dead
            break
    os._exit(ExitCode.DONE)


if __name__ == "__main__":
    main(float(sys.argv[1]))
