"""A subprocess that answers one line of JSON with one line of JSON: what is compared runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO


class ChildEnded(Exception):
    """The subprocess ended instead of answering."""


class LineChild:
    """`python -m MODULE ARGUMENTS...`, asked line by line. Its standard error is ours."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question, one answer.

        Raises: ChildEnded.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildEnded(f"{self._process.args[2]} ended with status {self._process.wait()}")  # pyright: ignore
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20.0)


def reserve_output() -> TextIO:
    """The subprocess's side, before anything else: returns standard output. What is printed later goes to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def answer_lines(replies: TextIO, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The subprocess's side: answer each line until the input ends."""
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()
