"""A gateway whose model thinks before it answers, and a gateway that is killed within such an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from actors.gateway.text.models.folder_text import FolderText
from messages.generation.sequences import Submit
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import until

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: <think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)
THOUGHT = "I wonder."


@asynccontextmanager
async def thinking_server(
    folder: Path,
    text: FolderText,
    said: Callable[[str], str],
    *,
    with_socket: bool = False,
    is_automatic: bool = True,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """A gateway and a fake scheduler. The model thinks first if the prompt lets it, then it writes `said(prompt)`.
    `is_automatic`: the scheduler answers by itself."""
    chosen = {"model_folder": str(folder), "model_name": "m", "chat_template": TEMPLATE, **settings}
    async with rig(with_scheduler=False, with_socket=with_socket, **chosen) as r:
        (await r.add_scheduler(is_automatic=is_automatic)).output_of = _writes(text, said)
        yield r


async def answer_after_a_kill(r: Rig, path: str, body: dict[str, Any], n_before: int) -> bytes:
    """Kill the gateway after `n_before` tokens of an answer and ask its successor for the answer. Kill that one too and check
    that the third gateway, which is left running, gives the same bytes. All three calls have the idempotency key "one"."""
    scheduler, key = r.scheduler(), {"Idempotency-Key": "one"}
    scheduler.is_automatic = False
    async with r.http() as client:
        asked = asyncio.create_task(client.post(path, json=body, headers=key))
        await until(lambda: bool(scheduler.running))
        scheduler.step(n_before)
        await until(lambda: r.manager.unfinished.all[0].n_generated == n_before)
        await r.kill_gateway()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    scheduler.is_automatic = True
    answers: list[httpx.Response] = []
    for incarnation in (2, 3):
        await r.start_gateway(incarnation)
        async with r.http() as client:
            answers.append(await client.post(path, json=body, headers=key))
        if incarnation == 2:
            await r.kill_gateway()
    assert answers[0].content == answers[1].content
    return answers[0].content


def _writes(text: FolderText, said: Callable[[str], str]) -> Any:
    def output(submit: Submit, n: int) -> list[int]:
        prompt = text.decode(submit.tokens[: submit.n_prompt].tolist())
        written = f"{THOUGHT}\n</think>\n\n{said(prompt)}" if prompt.endswith("<think>\n") else said(prompt)
        whole = [*text.encode(written, add_special_tokens=False), text.eos_tokens[0]]
        return whole[len(submit.tokens) - submit.n_prompt :]

    return output
