"""A step thread whose engine raises an error: the memory is distrusted before anybody hears of the fault."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gpu_workers.process.step_thread import StepThread


def fail(report: Any) -> Any:
    raise RuntimeError("device")


async def test_memory_is_distrusted_before_the_fault_is_reported() -> None:
    seen, over = list[str](), asyncio.Event()

    def on_fault(doing: str, error: BaseException) -> None:
        seen.append(f"fault: {error}")
        over.set()

    events: Any = SimpleNamespace(on_fault=on_fault)
    StepThread(fail, events, on_error=lambda: seen.append("distrusted")).start()
    async with asyncio.timeout(60.0):
        await over.wait()
    assert seen == ["distrusted", "fault: device"]
