"""A request whose grammar cannot be compiled because the machine has no room for the process that would do it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.admission import spec_builder, tool_grammar
from actors.gateway.text import grammar_compiler
from actors.gateway.text.grammar_compiler import GrammarCompiler
from tests.support.gateway.gateway_rig import rig

HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}}
ASKED = ({"structured_outputs": {"regex": "[ab]+"}}, {"tools": [TOOL], "tool_choice": "required"})


def no_process(*_: Any, **__: Any) -> None:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def refuse_processes(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_compiler.subprocess, "Popen", no_process)


def refuse_threads(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler._threads._threads, "submit", no_thread)


@pytest.mark.parametrize("refuse", [refuse_processes, refuse_threads])
async def test_a_machine_without_room_for_a_compiler_is_told_and_asked_again_later(
    refuse: Callable[[GrammarCompiler, pytest.MonkeyPatch], None],
    smollm2_text_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = GrammarCompiler()
    for module in (spec_builder, tool_grammar):
        monkeypatch.setattr(module, "grammar_compiler", lambda: compiler)
    async with rig(model_folder=str(smollm2_text_folder), model_name="m") as r, r.http() as http:
        with monkeypatch.context() as full:
            refuse(compiler, full)
            for fields in ASKED:
                answer = await http.post("/v1/chat/completions", json={"messages": HELLO, **fields})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (503, "unavailable"), answer.text
                assert error["message"].startswith("the machine cannot start a process that compiles the grammar")
                assert int(answer.headers["Retry-After"]) == 5
        for fields in ASKED:
            answer = await http.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 4, **fields})
            assert answer.status_code == 200, answer.text
