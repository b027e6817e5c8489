"""Watches Triton's compiler. A step that waits for it takes seconds, but does not hang. While requests are served, no step
should have to wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

_VARIANT_CHARACTERS = 400  # of a variant's description in the log


class CompileWatch:
    """Watches the compiler of this process from its construction on.

    hooks: `triton.knobs.runtime` (Triton 3.4 and later). It calls `jit_cache_hook` before it compiles a kernel, which it does
    unless that returns True, and `jit_post_compile_hook` after it; also for one that it finds in its cache on the disk.
    now_s: a monotonic clock."""

    def __init__(self, hooks: Any, now_s: Callable[[], float] = time.monotonic) -> None:
        self.is_compiling = False  # written by the step thread
        self.n_late = 0  # kernels compiled after `serve`; the same
        self._now_s = now_s
        self._began_s = 0.0
        self._is_serving = False
        hooks.jit_cache_hook = self._begin
        hooks.jit_post_compile_hook = self._end

    def serve(self) -> None:
        """From now on requests wait for each compilation, so each is counted and logged."""
        self._is_serving = True

    def _begin(self, **_: object) -> bool:
        self.is_compiling = True
        self._began_s = self._now_s()
        return False

    def _end(self, *, fn: Any = None, **details: object) -> None:
        """fn: has the kernel's name; details: `repr` describes its variant."""
        self.is_compiling = False
        if self._is_serving:
            self.n_late += 1
            structlog.get_logger().warning(
                "a kernel was compiled while requests waited",
                kernel=getattr(fn, "name", "?"),
                took_s=round(self._now_s() - self._began_s, 3),
                variant=str(details.get("repr", ""))[:_VARIANT_CHARACTERS],
            )


def watch_triton() -> CompileWatch:
    """The watch of this process. Raises: ImportError without Triton."""
    from triton import knobs  # pyright: ignore[reportMissingImports]

    return CompileWatch(knobs.runtime)
