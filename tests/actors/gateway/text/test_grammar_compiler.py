"""Grammars are compiled in processes that a slow or hostile one cannot outlive."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from actors.gateway.text.grammar_compiler import GrammarCompiler
from actors.gateway.text.grammar_process import GrammarWanted, write_frame
from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.grammar import Grammar, GrammarKind
from tests.support.waiting import DEADLINE_S

WORDS = Grammar(kind=GrammarKind.REGEX, text="[a-z]+( [a-z]+)*")
MARKS = ReasoningMarks("<think>", "</think>")


def endless() -> Grammar:
    """Forty patterns that must match together: the states of their automata multiply."""
    patterns = [{"type": "string", "pattern": f"^(.*a.{{{n}}}b.*|.*c.{{{n}}}d.*)$"} for n in range(20, 60)]
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"allOf": patterns}))


async def test_what_comes_back_is_what_compiles_here() -> None:
    compiler = GrammarCompiler()
    assert await compiler.compile(WORDS) == compile_grammar(WORDS)
    assert await compiler.compile(WORDS, MARKS) == compile_grammar(WORDS, MARKS)
    with pytest.raises(GrammarError, match="unclosed"):
        await compiler.compile(Grammar(kind=GrammarKind.REGEX, text="[a"))


async def test_a_grammar_that_never_compiles_is_refused_and_others_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(limit_s=0.5)
    slow = asyncio.ensure_future(compiler.compile(endless()))
    assert await compiler.compile(WORDS) == compile_grammar(WORDS)
    assert not slow.done()
    with pytest.raises(GrammarError, match=r"one that takes more than 0\.5 s of a processor to compile"):
        await slow
    monkeypatch.setattr(compiler, "_ask", None)
    assert await compiler.compile(WORDS) == compile_grammar(WORDS), "what is known needs no process"


async def test_slow_grammars_of_one_caller_hold_up_none_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, may_end = GrammarCompiler(), threading.Event()
    ask = compiler._ask

    def ask_slowly(wanted: GrammarWanted) -> Grammar:
        assert wanted.text == WORDS.text or may_end.wait(DEADLINE_S)
        return ask(wanted)

    monkeypatch.setattr(compiler, "_ask", ask_slowly)
    flood = [Grammar(kind=GrammarKind.REGEX, text=f"[a-z]{{{number}}}") for number in range(1, 9)]
    slow = [asyncio.ensure_future(compiler.compile(one, caller=b"flood")) for one in flood]
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S / 2):
        assert await compiler.compile(WORDS, caller=b"other") == compile_grammar(WORDS)
    assert not any(one.done() for one in slow)
    may_end.set()
    assert await asyncio.gather(*slow) == [compile_grammar(one) for one in flood]


async def test_a_schema_that_is_nested_too_deeply_ends_no_process() -> None:
    compiler = GrammarCompiler()
    text = '{"properties": {"a": ' * 400 + "{}" + "}}" * 400
    with pytest.raises(GrammarError, match="one that is nested too deeply"):
        await compiler.compile(Grammar(kind=GrammarKind.JSON_SCHEMA, text=text))
    assert len(compiler._idle) == 1


async def test_a_process_that_others_kill_is_replaced() -> None:
    compiler = GrammarCompiler()
    await compiler.compile(WORDS)
    (process,) = compiler._idle
    os.kill(process._popen.pid, signal.SIGKILL)
    digits = Grammar(kind=GrammarKind.REGEX, text="[0-9]+")
    assert await compiler.compile(digits) == compile_grammar(digits)


async def test_a_process_that_is_stopped_is_replaced() -> None:
    """Its grammar is compiled by the next one, and it does not stay."""
    compiler = GrammarCompiler()
    await compiler.compile(WORDS)
    (process,) = compiler._idle
    os.kill(process._popen.pid, signal.SIGSTOP)
    digits = Grammar(kind=GrammarKind.REGEX, text="[0-9]+")
    assert await compiler.compile(digits) == compile_grammar(digits)
    assert process._popen.returncode == -signal.SIGKILL


def test_a_process_whose_gateway_is_dead_says_nothing() -> None:
    """Nobody reads its answer any more."""
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "actors.gateway.text.grammar_process", "2.0"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert process.stdin is not None
    assert process.stderr is not None
    write_frame(process.stdin, GrammarWanted(WORDS.kind, WORDS.text, None))
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stdin.close()
    process.stderr.close()
