"""A step that waits for the compiler has the general limit; any other has 20 times its expected time. Compilations after the
warm-up are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import structlog

from gpu_workers.cuda.compile_watch import CompileWatch
from gpu_workers.process.step_thread import StepThread
from messages.steps import Plan
from messages.wire.arrays import EMPTY_I32


def plan(expected_s: float) -> Plan:
    return Plan(
        epoch=1, step=1, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=EMPTY_I32, row_starts=EMPTY_I32, row_counts=EMPTY_I32, row_samples=EMPTY_I32,
        expected_s=expected_s,
    )  # fmt: skip


def test_a_kernel_is_compiled_between_the_hooks() -> None:
    hooks: Any = SimpleNamespace()
    watch = CompileWatch(hooks)
    assert not watch.is_compiling
    assert hooks.jit_cache_hook(key="k", fn=None) is False, "Triton must compile"
    assert watch.is_compiling
    hooks.jit_post_compile_hook(key="k", fn=None)
    assert not watch.is_compiling


def test_compilations_are_counted_and_logged_from_the_end_of_the_warm_up_on() -> None:
    hooks: Any = SimpleNamespace()
    times_s = iter([1.0, 10.0, 12.5])
    watch = CompileWatch(hooks, lambda: next(times_s))

    def compile_kernel(name: str) -> None:
        kernel = {"key": "k", "fn": SimpleNamespace(name=name), "repr": f"{name}[num_warps=4](*fp32)"}
        hooks.jit_cache_hook(**kernel)
        hooks.jit_post_compile_hook(**kernel)

    with structlog.testing.capture_logs() as logs:
        compile_kernel("expected")
        watch.serve()
        assert (watch.n_late, logs) == (0, [])
        compile_kernel("late")
    assert watch.n_late == 1
    (line,) = logs
    assert (line["log_level"], line["kernel"], line["took_s"]) == ("warning", "late", 2.5)
    assert line["variant"] == "late[num_warps=4](*fp32)"


async def test_the_limit_of_a_step_follows_from_its_plan() -> None:
    engine: Any = SimpleNamespace(is_compiling=False)
    steps = StepThread(lambda report: engine, SimpleNamespace(), least_hang_s=1.0)  # pyright: ignore[reportArgumentType]
    steps._engine = engine
    assert steps.limit_s() == 0.0
    limits = []
    for expected_s in (0.0, 0.01, 0.5):
        steps._plans.clear()
        steps._plans.append(plan(expected_s))
        limits.append(steps.limit_s())
    assert limits == [0.0, 1.0, 10.0]
    engine.is_compiling = True
    assert steps.limit_s() == 0.0
