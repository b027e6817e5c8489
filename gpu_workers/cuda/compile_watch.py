"""Knows whether Triton compiles a kernel now: a step that waits for that takes seconds, and does not hang."""

from __future__ import annotations

from typing import Any


class CompileWatch:
    """Watches the compiler of this process from its construction on.

    hooks: `triton.knobs.runtime` (Triton 3.4 and later). It calls `jit_cache_hook` before it compiles a kernel, which it does
    unless that returns True, and `jit_post_compile_hook` after it."""

    def __init__(self, hooks: Any) -> None:
        self.is_compiling = False  # written by the step thread
        hooks.jit_cache_hook = self._begin
        hooks.jit_post_compile_hook = self._end

    def _begin(self, **_: object) -> bool:
        self.is_compiling = True
        return False

    def _end(self, **_: object) -> None:
        self.is_compiling = False


def watch_triton() -> CompileWatch:
    """The watch of this process. Raises: ImportError without Triton."""
    from triton import knobs  # pyright: ignore[reportMissingImports]

    return CompileWatch(knobs.runtime)
