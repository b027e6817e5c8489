"""A gateway whose model thinks, and calls the tool `get_weather` until it has a result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from actors.gateway.text.tokenizer import FolderText
from messages.generation.sequences import Submit
from tests.support.gateway.gateway_rig import Rig, rig

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: <think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def writes(text: FolderText) -> Any:
    """What the model writes: it thinks if the prompt lets it, and calls the function until it has a result."""

    def output(submit: Submit, n: int) -> list[int]:
        prompt = text.decode(submit.tokens[: submit.n_prompt].tolist())
        said = "It is sunny." if "sunny" in prompt else CALL
        written = f"I wonder.\n</think>\n\n{said}" if prompt.endswith("<think>\n") else said
        whole = [*text.encode(written, add_special_tokens=False), text.eos_tokens[0]]
        return whole[len(submit.tokens) - submit.n_prompt :]

    return output


@asynccontextmanager
async def calling_server(folder: Path, text: FolderText, *, is_automatic: bool = True, **settings: Any) -> AsyncIterator[Rig]:
    """`folder`: of SmolLM2, whose text model is `text`."""
    chosen = {"model_folder": str(folder), "model_name": "m", "chat_template": TEMPLATE, **settings}
    async with rig(with_scheduler=False, **chosen) as r:
        (await r.add_scheduler(is_automatic=is_automatic)).output_of = writes(text)
        yield r
